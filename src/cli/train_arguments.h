// The arguments that train and plan share: [run.yaml] and a flag for every training key.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "cli/flags.h"
#include "session/options.h"

namespace spillway {

class TrainArguments {
 public:
  explicit TrainArguments(CLI::App& app);

  // The file's values, with those of the flags over them. Throws UserError.
  const TrainOptions& read();
  bool print_config_wanted() const { return print_config_; }
  std::string config_text() const;  // after read

 private:
  TrainOptions options_;
  std::string config_path_;
  bool print_config_ = false;
  Flags flags_;
};

}  // namespace spillway
