// Options as flags of one verb: a key's flag has '-' for '_'.
#pragma once

#include <CLI/CLI.hpp>

#include <deque>
#include <string_view>
#include <vector>

#include "session/options.h"

namespace spillway {

// Adds a flag for every row, and after parsing sets what was given. The App and the struct behind the rows must
// outlive it.
class Flags {
 public:
  Flags(CLI::App& app, std::vector<Option> rows);
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  const std::vector<Option>& rows() const { return rows_; }
  bool given(std::string_view key) const;
  void apply() const;  // throws UserError

 private:
  struct Given {
    CLI::Option* flag = nullptr;
    std::string text;
    std::vector<std::string> texts;  // of a list
  };
  CLI::Option* add(CLI::App& app, const Option& row, Given& given);

  std::vector<Option> rows_;
  std::deque<Given> given_;  // in the order of rows_; a deque, since CLI11 keeps addresses
};

// `--shuffle false` becomes `--shuffle=false` for the switches of this verb, so that both can be written. `--trace=`
// becomes `--trace` and an empty text: CLI11 would take the next argument for its value.
void spell_out_values(std::vector<std::string>& arguments, const CLI::App& verb);

}  // namespace spillway
