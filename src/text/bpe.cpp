#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/error.h"
#include "text/utf8.h"

namespace spillway {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581, which stands for a space
constexpr std::uint32_t kNone = ~std::uint32_t{0};

struct ByteLevelAlphabet {
  std::array<char32_t, 256> character;
  std::array<std::int16_t, 324> byte;
};

// Bytes that print in Latin-1 stand for themselves, the other 68 take the characters from U+0100 on.
ByteLevelAlphabet make_alphabet() {
  ByteLevelAlphabet alphabet{};
  alphabet.byte.fill(-1);
  char32_t next = 256;
  for (char32_t b = 0; b < 256; ++b) {
    const bool prints = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    alphabet.character[b] = prints ? b : next++;
    alphabet.byte[alphabet.character[b]] = static_cast<std::int16_t>(b);
  }
  return alphabet;
}

const ByteLevelAlphabet& alphabet() {
  static const ByteLevelAlphabet made = make_alphabet();
  return made;
}

// Calls word(text) for the parts of `piece` that begin at a metaspace after another character.
template <typename Word>
void for_each_word(std::string_view piece, Word word) {
  std::size_t begin = 0;
  std::size_t from = 0;
  for (std::size_t at; (at = piece.find(kMetaspace, from)) != std::string_view::npos; from = at + kMetaspace.size()) {
    if (at == from && at != 0) continue;  // in a run of metaspaces
    if (at > begin) word(piece.substr(begin, at - begin));
    begin = at;
  }
  if (begin < piece.size()) word(piece.substr(begin));
}

}  // namespace

char32_t byte_level_character(std::uint8_t byte) { return alphabet().character[byte]; }

int byte_level_byte(char32_t character) { return character < alphabet().byte.size() ? alphabet().byte[character] : -1; }

void append_byte_level(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) append_utf8(byte_level_character(static_cast<std::uint8_t>(byte)), out);
}

Bpe::Bpe(Vocabulary vocabulary, Merges merges, const Options& options)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), options_(options) {
  for (std::size_t b = 0; b < 256; ++b) {
    std::string character;
    append_utf8(byte_level_character(static_cast<std::uint8_t>(b)), character);
    byte_tokens_[b] = vocabulary_.find(character);
    fallback_tokens_[b] = vocabulary_.find(fmt::format("<0x{:02X}>", b));
  }
  separate_words_ = words_are_separate();
  const bool all_bytes = std::find(byte_tokens_.begin(), byte_tokens_.end(), kNoToken) == byte_tokens_.end();
  bytes_are_ids_ = options_.byte_level && !options_.ignore_merges && merges_.list().empty() && all_bytes;
}

// Sentencepiece models see a whole line as one piece. Where no merge makes a token with a metaspace after another
// character, nothing ever joins across the begin of a word, so words may be encoded, and cached, one by one.
bool Bpe::words_are_separate() const {
  if (options_.byte_level || options_.ignore_merges || vocabulary_.find(kMetaspace) == kNoToken) return false;
  for (const Merges::Merge& merge : merges_.list()) {
    int words = 0;
    for_each_word(*vocabulary_.text(merge.result), [&words](std::string_view) { ++words; });
    if (words > 1) return false;
  }
  return true;
}

void BpeScratch::shrink() {
  constexpr std::size_t kKept = 16 * 1024;
  if (symbols_.capacity() > kKept) symbols_ = {};
  if (heap_.capacity() > kKept) heap_ = {};
  if (mapped_.capacity() > kKept) mapped_ = {};
}

void Bpe::encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const {
  SPILLWAY_CHECK(piece.size() < std::numeric_limits<std::uint32_t>::max(), "a piece of {} bytes", piece.size());
  if (separate_words_) {
    for_each_word(piece, [&](std::string_view word) { encode_word(word, scratch, out); });
  } else if (!piece.empty()) {
    encode_word(piece, scratch, out);
  }
}

void Bpe::encode_word(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const {
  BpeScratch::Word* slot = nullptr;
  if (word.size() <= BpeScratch::kCachedBytes) {
    slot = &scratch.cache_[std::hash<std::string_view>{}(word) % BpeScratch::kCacheSlots];
    if (std::string_view(slot->text.data(), slot->text_size) == word) {
      out.insert(out.end(), slot->ids.begin(), slot->ids.begin() + slot->id_count);
      return;
    }
  }
  const std::size_t before = out.size();
  compute_word(word, scratch, out);
  const std::size_t made = out.size() - before;
  if (slot == nullptr || made > BpeScratch::kCachedIds) return;
  slot->text_size = static_cast<std::uint8_t>(word.size());
  slot->id_count = static_cast<std::uint8_t>(made);
  std::copy(word.begin(), word.end(), slot->text.begin());
  std::copy(out.end() - static_cast<std::ptrdiff_t>(made), out.end(), slot->ids.begin());
}

void Bpe::compute_word(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const {
  if (bytes_are_ids_) {
    for (const char byte : word) out.push_back(byte_tokens_[static_cast<std::uint8_t>(byte)]);
    return;
  }
  if (options_.ignore_merges) {
    const TokenId whole = vocabulary_.find(as_written(word, scratch));
    if (whole != kNoToken) {
      out.push_back(whole);
      return;
    }
  }
  if (!options_.byte_level || !start_from_bytes(word, scratch)) {
    start_from_characters(as_written(word, scratch), scratch);
  }
  join(scratch);
  for (const BpeScratch::Symbol& symbol : scratch.symbols_) {
    if (symbol.id != kNoToken) out.push_back(symbol.id);
  }
}

// The word in the vocabulary's alphabet.
std::string_view Bpe::as_written(std::string_view word, BpeScratch& scratch) const {
  if (!options_.byte_level) return word;
  scratch.mapped_.clear();
  append_byte_level(word, scratch.mapped_);
  return scratch.mapped_;
}

// False if a byte has no token of its own.
bool Bpe::start_from_bytes(std::string_view word, BpeScratch& scratch) const {
  scratch.symbols_.clear();
  for (const char byte : word) {
    const TokenId id = byte_tokens_[static_cast<std::uint8_t>(byte)];
    if (id == kNoToken) return false;
    scratch.symbols_.push_back({id, 0, 0});
  }
  return true;
}

void Bpe::start_from_characters(std::string_view text, BpeScratch& scratch) const {
  scratch.symbols_.clear();
  bool unknown_waits = false;
  const auto put_unknown = [&] {
    if (unknown_waits) scratch.symbols_.push_back({options_.unknown, 0, 0});
    unknown_waits = false;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view character = text.substr(at, code_point_at(text, at).size_bytes);
    at += character.size();
    const TokenId id = vocabulary_.find(character);
    const auto has_byte = [&](char b) { return fallback_tokens_[static_cast<std::uint8_t>(b)] != kNoToken; };
    if (id != kNoToken) {
      put_unknown();
      scratch.symbols_.push_back({id, 0, 0});
    } else if (options_.byte_fallback && std::all_of(character.begin(), character.end(), has_byte)) {
      // A waiting unknown token stays waiting here, so it lands after these bytes: so does the Hugging Face library.
      for (const char b : character) {
        scratch.symbols_.push_back({fallback_tokens_[static_cast<std::uint8_t>(b)], 0, 0});
      }
    } else if (options_.unknown != kNoToken) {
      if (!options_.fuse_unknown) put_unknown();
      unknown_waits = true;
    }
  }
  put_unknown();
}

void Bpe::propose(std::uint32_t left, std::uint32_t right, BpeScratch& scratch) const {
  const std::uint32_t rank = merges_.rank(scratch.symbols_[left].id, scratch.symbols_[right].id);
  if (rank != Merges::kNoMerge) scratch.heap_.push_back({rank, left, merges_.result(rank)});
}

void Bpe::join(BpeScratch& scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols_;
  std::vector<BpeScratch::Candidate>& heap = scratch.heap_;
  // std heaps keep the largest in front, so "less" means "joins later".
  const auto later = [](const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto propose_and_sift = [&](std::uint32_t left, std::uint32_t right) {
    const std::size_t heap_before = heap.size();
    propose(left, right, scratch);
    if (heap.size() > heap_before) std::push_heap(heap.begin(), heap.end(), later);
  };
  heap.clear();
  const auto count = static_cast<std::uint32_t>(symbols.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    symbols[i].previous = i == 0 ? kNone : i - 1;
    symbols[i].next = i + 1 == count ? kNone : i + 1;
    if (i + 1 < count) propose(i, i + 1, scratch);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const BpeScratch::Candidate top = heap.back();
    heap.pop_back();
    BpeScratch::Symbol& left = symbols[top.at];
    if (left.id == kNoToken || left.next == kNone) continue;
    // The neighbours may have changed since this was proposed.
    const std::uint32_t rank = merges_.rank(left.id, symbols[left.next].id);
    if (rank == Merges::kNoMerge || merges_.result(rank) != top.result) continue;
    BpeScratch::Symbol& right = symbols[left.next];
    left.id = top.result;
    right.id = kNoToken;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = top.at;
    if (left.previous != kNone) propose_and_sift(left.previous, top.at);
    if (left.next != kNone) propose_and_sift(top.at, left.next);
  }
}

}  // namespace spillway
