#include <nlohmann/json.hpp>

#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace spillway {
namespace {

using nlohmann::ordered_json;

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr int kEndOfTextId = 256;

}  // namespace

std::string bytes_tokenizer_json() {
  ordered_json vocabulary = ordered_json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    append_utf8(byte_level_character(static_cast<std::uint8_t>(byte)), character);
    vocabulary[character] = byte;
  }
  const ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const ordered_json end = {{"id", kEndOfTextId}, {"content", kEndOfText}, {"single_word", false}, {"lstrip", false},
                            {"rstrip", false},    {"normalized", false},   {"special", true}};
  const ordered_json model = {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"ignore_merges", false},
                              {"vocab", vocabulary},
                              {"merges", ordered_json::array()}};
  const ordered_json file = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", ordered_json::array({end})},
                             {"normalizer", nullptr},
                             {"pre_tokenizer", byte_level},
                             {"post_processor", nullptr},
                             {"decoder", byte_level},
                             {"model", model}};
  return file.dump(1) + "\n";
}

std::string bytes_tokenizer_config_json() {
  const ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                               {"eos_token", kEndOfText},
                               {"bos_token", kEndOfText},
                               {"clean_up_tokenization_spaces", false}};
  return config.dump(1) + "\n";
}

}  // namespace spillway
