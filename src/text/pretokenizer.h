// The pre-tokenizer of tokenizer.json: cuts text into the pieces within which tokens may join.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer_fields.h"
#include "text/tokenizer_pattern.h"

namespace spillway {

class PreTokenizer {
 public:
  PreTokenizer() = default;
  // `value` may be null. Understands ByteLevel (in the last place), Split, Digits, Metaspace and Sequence; throws
  // UserError on others.
  PreTokenizer(const nlohmann::json& value, const std::string& where);

  // Whether pieces are to be written in the byte-level alphabet; the model does that.
  bool byte_level() const { return byte_level_; }

  // Calls piece(text) for each piece in order. `at_start` says that `text` begins the original text. Safe from several
  // threads.
  using Piece = std::function<void(std::string_view)>;
  void split(std::string_view text, bool at_start, const Piece& piece) const { run(0, text, at_start, piece); }

 private:
  enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  enum class PrependScheme { always, first, never };
  struct Split {
    Pattern pattern;
    Behavior behavior;
    bool invert;
  };
  struct PrefixSpace {};  // of ByteLevel
  struct Metaspace {
    std::string replacement;
    PrependScheme prepend;
  };
  using Step = std::variant<Split, PrefixSpace, Metaspace>;

  void add(const Fields& fields, int depth);
  void add_split(const Fields& fields);
  void add_byte_level(const Fields& fields);
  void add_metaspace(const Fields& fields);
  void run(std::size_t step, std::string_view text, bool at_start, const Piece& piece) const;
  void run_split(const Split& split, std::size_t step, std::string_view text, bool at_start, const Piece& piece) const;

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

// Whether a Metaspace (pre-tokenizer or decoder) prepends its mark: from prepend_scheme, or from the older
// add_prefix_space.
std::string metaspace_prepend_scheme(const Fields& fields);

}  // namespace spillway
