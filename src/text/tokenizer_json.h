// tokenizer.json of the Hugging Face tokenizers library, read as a stream: a tree of a file with 128k tokens would take
// 60 to 114 MB. The vocabulary and the merges go straight to flat tables; the small sections are kept as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_merges.h"
#include "text/bpe_vocabulary.h"
#include "text/tokenizer_added.h"

namespace spillway {

struct TokenizerFile {
  Vocabulary vocabulary;  // sealed
  Merges merges;          // sealed
  nlohmann::json model;   // the model's fields but vocab and merges
  std::vector<AddedToken> added_tokens;
  nlohmann::json normalizer, pre_tokenizer, post_processor, decoder;  // null where the file has none
};

// Throw UserError, naming `name` and the field, for anything malformed and for models that are not BPE.
TokenizerFile read_tokenizer_json(std::istream& in, const std::string& name);
TokenizerFile read_tokenizer_json(std::string_view text, const std::string& name);

}  // namespace spillway
