// Safetensors files: 8 bytes of header length (little-endian), a JSON header, then the bytes of all tensors without
// gaps. Nothing here holds a tensor: callers read and write ranges of bytes, so memory stays bounded by the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "formats/atomic_file.h"
#include "formats/file.h"

namespace spillway {

struct SafetensorsEntry {
  std::string name;
  std::string stored_dtype;  // "F32", "BF16", "BOOL", …
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // from the begin of the data, not of the file
  std::int64_t bytes = 0;

  // None for types that no arithmetic here knows (BOOL, I8, F8_E4M3, …).
  std::optional<DType> dtype() const;
  bool operator==(const SafetensorsEntry&) const = default;
};

// "BF16" of DType::bf16.
std::string_view stored_name_of(DType dtype);
// Bytes of one element of a stored dtype; it must be one of the format.
std::int64_t stored_element_bytes(std::string_view stored_dtype);

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // by offset
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

constexpr std::int64_t safetensors_header_limit_bytes = 100'000'000;

// Pure: the JSON header of a file whose tensors take `data_bytes`. Refuses, naming `file` and the tensor: wrong JSON or
// types, duplicate names, unknown dtypes, sizes that overflow, offsets that overlap, leave gaps, lie outside, or differ
// from dtype and shape. Throws UserError, and nothing else, whatever the text.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes, std::string_view file);

// Pure: the length of the JSON header, from the first 8 bytes of a file of `file_bytes`. UserError when it lies.
std::int64_t safetensors_header_bytes(std::span<const std::byte> begin, std::int64_t file_bytes, std::string_view file);

// Pure: both, from the first bytes of a file of `file_bytes`, of which `begin` must hold the header if the length in
// front is to be believed. For tests and fuzzing.
SafetensorsHeader parse_safetensors_begin(std::span<const std::byte> begin, std::int64_t file_bytes,
                                          std::string_view file);

// One open file. Reading is const and may be done by several threads.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const SafetensorsEntry* find(std::string_view name) const;  // null when absent

  // Bytes [byte_begin, byte_begin + into.size()) of a tensor of this file. Pages read are dropped from the page cache.
  void read(const SafetensorsEntry& entry, std::int64_t byte_begin, std::span<std::byte> into) const;

 private:
  File file_;
  std::int64_t data_offset_ = 0;
  SafetensorsHeader header_;
  std::map<std::string_view, std::size_t> by_name_;
};

// The tensors of a model folder: model.safetensors, or the shards of model.safetensors.index.json, all opened and
// checked (each name of the index is in the shard it says, no name is twice).
class ModelFolder {
 public:
  struct Tensor {
    const SafetensorsReader* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };

  // UserError when the folder, its config.json or a weight file is missing or wrong.
  explicit ModelFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path config_path() const { return folder_ / "config.json"; }
  // By name.
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;  // null when absent
  // Names that a shard holds and the index does not list; they are not among tensors().
  const std::vector<std::string>& unlisted() const { return unlisted_; }
  std::int64_t tensor_bytes() const;
  void read(const Tensor& tensor, std::int64_t byte_begin, std::span<std::byte> into) const {
    tensor.file->read(*tensor.entry, byte_begin, into);
  }

 private:
  void open_single(const std::filesystem::path& path);
  void open_shards(const std::filesystem::path& index);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::vector<std::string> unlisted_;
};

// What is to be written: offsets are chosen by the writer.
struct SafetensorsTensor {
  std::string name;
  std::string stored_dtype;
  std::vector<std::int64_t> shape;
};

// One file, under a temporary name until finish(); dropped without finish(), the temporary file is removed. One thread
// at a time. The data is put on disk as it comes, so that dirty pages stay bounded. Throws DeviceError when the disk
// fails or is full.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::span<const SafetensorsTensor> tensors,
                    const std::map<std::string, std::string>& metadata);

  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  // Bytes of one tensor from `byte_begin` on, in any order, each byte once.
  void write(std::string_view name, std::int64_t byte_begin, std::span<const std::byte> from);
  // Checks that every byte was written and makes the file durable, still under its temporary name.
  void seal();
  // seal(), then the file appears at its path.
  void finish();

 private:
  void mark_written(std::int64_t begin, std::int64_t end);

  TemporaryFile temporary_;
  std::int64_t data_offset_ = 0;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::int64_t, std::int64_t> written_;  // begin -> end of written ranges of the data, merged
  std::int64_t unsynced_bytes_ = 0;
};

// The weights of a model folder: model.safetensors, or, above `shard_bytes`, model-0000k-of-0000n.safetensors with
// model.safetensors.index.json. Nothing appears under its final name before finish(); the index comes last.
class ModelFolderWriter {
 public:
  static constexpr std::int64_t default_shard_bytes = 5'000'000'000;

  // The folder must exist. A tensor is never split over shards. UserError when the folder holds weights of the other
  // form (single or sharded), which would be taken for this model's.
  ModelFolderWriter(const std::filesystem::path& folder, std::span<const SafetensorsTensor> tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                    std::int64_t shard_bytes = default_shard_bytes);

  void write(std::string_view name, std::int64_t byte_begin, std::span<const std::byte> from);
  void finish();

 private:
  std::string index_text() const;

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsWriter>> files_;
  std::vector<std::string> file_names_;
  std::map<std::string, std::size_t, std::less<>> file_of_;
};

}  // namespace spillway
