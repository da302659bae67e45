// Text to token ids and back, as the Hugging Face tokenizers library does it for BPE models: byte-level ones (GPT-2,
// Llama 3, Qwen) and Sentencepiece-style ones with byte fallback (Llama 2, TinyLlama).
//
// What tokenizer.json asks for and is not implemented is refused by name when the file is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_vocabulary.h"
#include "text/tokenizer_decoder.h"

namespace spillway {

// Constant after construction; every member may be called from several threads at once.
class Tokenizer {
 public:
  // `path` is a model folder that holds tokenizer.json, or such a file. tokenizer_config.json, generation_config.json
  // and config.json beside it name the begin and end tokens. Throws UserError. Memory: about 35 bytes a token and 18 a
  // merge while it lives, half as much again while it is read.
  static Tokenizer load(const std::filesystem::path& path);
  // The same from the text of a tokenizer.json; `name` stands for the file in errors.
  static Tokenizer parse(std::string_view text, std::string_view name);
  // The built-in one: ids 0 to 255 are bytes, 256 is <|endoftext|>.
  static Tokenizer bytes();

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Added tokens that are written in the text become their ids. Ill-formed UTF-8 is replaced by U+FFFD first.
  // `add_special_tokens` adds what the post-processor's template has around a text. A text is one piece of work: feed a
  // file in parts. Throws UserError where a pattern of the file gives up on the text.
  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens = false) const;

  // Well-formed UTF-8. Ids without a token (models pad their vocabularies) give nothing.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;

  std::int64_t vocab_size() const;  // largest id + 1
  std::optional<TokenId> begin_token() const;
  std::optional<TokenId> end_token() const;
  // What generation ends with beside it, as generation_config.json has it.
  const std::vector<TokenId>& stop_tokens() const;
  std::optional<std::string> token_text(TokenId id) const;  // as the vocabulary writes it
  std::string describe() const;

 private:
  friend class StreamDecoder;
  class Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

// Decodes ids one at a time. What push() and finish() return, put together, is what decode() gives for all of them,
// except that a run of byte tokens that is ill-formed keeps its good characters.
class StreamDecoder {
 public:
  // The tokenizer must outlive this.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = false);

  // The text that became complete with this id; empty while a character waits for its other bytes.
  std::string push(TokenId id);
  // No more ids: an unfinished character becomes U+FFFD. A new text may follow.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  TokenDecoder::State state_;
};

// The files that make a folder's tokenizer the built-in one, also for the Hugging Face libraries.
std::string bytes_tokenizer_json();
std::string bytes_tokenizer_config_json();

}  // namespace spillway
