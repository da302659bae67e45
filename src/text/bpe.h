// Byte-pair encoding of one piece of text: start from characters (or bytes) and join the pair of lowest rank, leftmost
// first, until no pair joins. O(n log n) in the length of the piece.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_merges.h"
#include "text/bpe_vocabulary.h"

namespace spillway {

// GPT-2's alphabet: each byte has a printable character that stands for it in vocabularies.
char32_t byte_level_character(std::uint8_t byte);
// The byte that a character stands for, or -1.
int byte_level_byte(char32_t character);
// Appends `bytes` written in that alphabet, as UTF-8.
void append_byte_level(std::string_view bytes, std::string& out);

// What one encoding needs besides the model: buffers, and a bounded cache of short words. For one thread at a time, and
// for one Bpe.
class BpeScratch {
 public:
  BpeScratch() : cache_(kCacheSlots) {}
  // Gives back what a long piece needed; the cache of words stays.
  void shrink();

 private:
  friend class Bpe;
  static constexpr std::size_t kCacheSlots = 4096;
  static constexpr std::size_t kCachedBytes = 26;
  static constexpr std::size_t kCachedIds = 9;
  // One cache line. An empty slot has no ids and no text.
  struct Word {
    std::uint8_t text_size = 0;
    std::uint8_t id_count = 0;
    std::array<char, kCachedBytes> text;
    std::array<TokenId, kCachedIds> ids;
  };
  static_assert(sizeof(Word) == 64);
  struct Symbol {
    TokenId id;  // kNoToken: joined into another
    std::uint32_t previous, next;
  };
  struct Candidate {
    std::uint32_t rank, at;
    TokenId result;
  };

  std::vector<Word> cache_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  std::string mapped_;
};

class Bpe {
 public:
  struct Options {
    bool byte_level = false;     // pieces are bytes; the vocabulary is written in the byte-level alphabet
    bool byte_fallback = false;  // a character without a token becomes its bytes' tokens <0x..>
    bool fuse_unknown = false;   // neighbouring unknown characters become one unknown token
    bool ignore_merges = false;  // a piece that is a token is that token
    TokenId unknown = kNoToken;  // without one, unknown characters vanish
  };

  // Both tables are sealed.
  Bpe(Vocabulary vocabulary, Merges merges, const Options& options);

  // Appends the ids of `piece`, well-formed UTF-8 of less than 4 GiB. Safe from several threads, each with its scratch.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const Merges& merges() const { return merges_; }
  const Options& options() const { return options_; }

 private:
  void encode_word(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;
  void compute_word(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;
  std::string_view as_written(std::string_view word, BpeScratch& scratch) const;
  bool start_from_bytes(std::string_view word, BpeScratch& scratch) const;
  void start_from_characters(std::string_view text, BpeScratch& scratch) const;
  void join(BpeScratch& scratch) const;
  void propose(std::uint32_t left, std::uint32_t right, BpeScratch& scratch) const;
  bool words_are_separate() const;

  Vocabulary vocabulary_;
  Merges merges_;
  Options options_;
  std::array<TokenId, 256> byte_tokens_;      // of the byte's character in the byte-level alphabet
  std::array<TokenId, 256> fallback_tokens_;  // <0x..>
  bool separate_words_ = false;
  bool bytes_are_ids_ = false;  // nothing joins and each byte has a token: no work but a table
};

}  // namespace spillway
