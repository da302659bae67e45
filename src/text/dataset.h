// Training text as token ids: files are tokenised once into one long row of ids on disk, which is cut in windows.
//
// Memory is bounded whatever the files: text is encoded in parts of at most `text_part_bytes`, and ids are read and
// written in small blocks. Nothing is mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "formats/file.h"
#include "formats/jsonl.h"

namespace spillway {

// What the data needs of a tokenizer.
class Encoder {
 public:
  virtual ~Encoder() = default;
  // Ids of valid UTF-8, without special tokens added.
  virtual std::vector<std::uint32_t> encode(std::string_view text) const = 0;
  // Stands after each document; none: documents follow each other directly.
  virtual std::optional<std::uint32_t> end_token() const = 0;
};

// A document longer than this is encoded in parts. It is cut before or at white space, at a place where encoding the
// two sides of the cut apart gives the ids of encoding them together; tokenizers that look no further than a word
// therefore give the ids of the whole. A constant, so that ids do not depend on the memory at hand.
// Small, because a tokenizer may need 30 times the bytes of a text that has no words.
constexpr std::int64_t text_part_bytes = 256 * kib;

struct DatasetCounts {
  std::int64_t documents = 0;
  std::int64_t text_bytes = 0;
  std::int64_t replaced = 0;     // wrong UTF-8 sequences that became U+FFFD
  std::int64_t forced_cuts = 0;  // cuts of long documents where no good place was found
};

// ".txt", ".jsonl", ".npy" or what else, in lower case.
std::string data_ending_of(const std::filesystem::path& path);
// The sizes of all files. UserError for what cannot be data: no files, an unknown ending, a missing or empty file.
std::int64_t check_data_files(std::span<const std::filesystem::path> files);

// Progress while tokenising: bytes of the files done, and in all.
using DatasetProgress = std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)>;

// A row of token ids in a file. Reading is const and may be done by several threads.
class TokenStore {
 public:
  // Tokenises `files` in order (.txt: one document; .jsonl: one document a line; .npy: ids as they are, without an end
  // token) into a new file at `path`, with the end token after each document. A single .npy is used in place and
  // `path` is not touched. Every id is checked to be below `vocab_size`. The
  // file loses its name as soon as it is made, so that its space is free when the process ends, however it ends.
  // UserError: no files, an unknown ending, a missing or empty file, a .jsonl line above `line_limit_bytes` (about five
  // times as much memory is used for one), an id beyond the vocabulary. DeviceError: disk.
  static TokenStore build(std::span<const std::filesystem::path> files, const Encoder& encoder, std::int64_t vocab_size,
                          const std::filesystem::path& path, const DatasetProgress& progress = {},
                          std::int64_t line_limit_bytes = JsonlReader::default_line_limit_bytes);

  std::int64_t count() const { return count_; }
  // XXH3 of all ids as little-endian u32: equal rows of ids, whatever the files, have equal ones.
  std::uint64_t hash() const { return hash_; }
  const std::string& name() const { return name_; }  // for errors: "a.txt", or "a.txt and 2 more files"
  const DatasetCounts& counts() const { return counts_; }
  // Ids [begin, begin + into.size()).
  void read(std::int64_t begin, std::span<std::int32_t> into) const;

 private:
  TokenStore() = default;
  static TokenStore in_place(const std::filesystem::path& path, std::int64_t vocab_size,
                             const DatasetProgress& progress);

  File file_;
  std::string name_;
  DType dtype_ = DType::u32;
  std::int64_t data_offset_ = 0;
  std::int64_t count_ = 0;
  std::uint64_t hash_ = 0;
  DatasetCounts counts_;
};

// Window w covers tokens [w T, w T + T + 1): T inputs and the T that follow them by one. The order is a pure function
// of (seed, position), so that a run resumes from its position alone.
class Windows {
 public:
  struct Order {
    bool shuffle = false;
    std::uint64_t seed = 0;
  };

  // UserError when the store holds less than one window. `store` must outlive this.
  Windows(const TokenStore& store, std::int64_t max_seq_len, Order order);

  // Of a row of so many ids.
  static std::int64_t count_in(std::int64_t ids, std::int64_t max_seq_len) { return (ids - 1) / max_seq_len; }
  std::int64_t count() const { return count_; }
  // The window of the sequence at this position since the start of training: position mod count() without shuffling,
  // otherwise by a permutation of all windows for each epoch. O(1) memory.
  std::int64_t index(std::int64_t global_sequence) const;
  // Both spans hold max_seq_len ids; targets[i] is the token after ids[i].
  void read(std::int64_t window, std::span<std::int32_t> ids, std::span<std::int32_t> targets) const;

 private:
  const TokenStore& store_;
  std::int64_t max_seq_len_;
  std::int64_t count_ = 0;
  Order order_;
};

// A permutation of [0, count) in O(1) memory (a Feistel network over the next even power of two, walked until it lands
// inside). Equal arguments give equal results on every machine.
std::int64_t permuted(std::int64_t index, std::int64_t count, std::uint64_t key);

}  // namespace spillway
