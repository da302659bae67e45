#include <nlohmann/json.hpp>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/atomic_file.h"
#include "formats/safetensors.h"
#include "formats/shown.h"

namespace spillway {
namespace {

constexpr std::string_view single_name = "model.safetensors";
constexpr std::string_view index_name = "model.safetensors.index.json";
constexpr std::int64_t index_limit_bytes = 64 * mib;

// Also true when it cannot be told; opening the file then gives the reason.
bool is_there(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::exists(path, unknown) || unknown;
}

// Tensor name to shard, from the text of an index.
std::map<std::string, std::string> parse_index(const std::string& text, const std::string& file) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    throw UserError("{}: not an index of safetensors files: it is JSON with an object 'weight_map'", file);
  }
  std::map<std::string, std::string> shard_of;
  for (const auto& [name, shard] : json["weight_map"].items()) {
    if (!shard.is_string()) throw UserError("{}: weight_map of '{}' is not a file name", file, shown(name));
    const auto& shard_name = shard.get_ref<const std::string&>();
    if (shard_name.empty() || shard_name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
      throw UserError("{}: weight_map of '{}' is '{}', which is not the name of a file in the same folder", file,
                      shown(name), shown(shard_name));
    }
    shard_of.emplace(name, shard_name);
  }
  if (shard_of.empty()) throw UserError("{}: the weight_map is empty", file);
  return shard_of;
}

std::int64_t bytes_of(const SafetensorsTensor& tensor) {
  std::int64_t bytes = stored_element_bytes(tensor.stored_dtype);
  for (const std::int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

// The tensors of each shard, in the order given.
std::vector<std::vector<SafetensorsTensor>> cut_in_shards(std::span<const SafetensorsTensor> tensors,
                                                          std::int64_t shard_bytes) {
  std::vector<std::vector<SafetensorsTensor>> shards(1);
  std::int64_t used_bytes = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::int64_t bytes = bytes_of(tensor);
    if (!shards.back().empty() && bytes > shard_bytes - used_bytes) {
      shards.emplace_back();
      used_bytes = 0;
    }
    shards.back().push_back(tensor);
    used_bytes += bytes;
  }
  return shards;
}

}  // namespace

ModelFolder::ModelFolder(const std::filesystem::path& folder) : folder_(folder) {
  std::error_code unknown;
  if (!std::filesystem::is_directory(folder, unknown)) throw UserError("{} is not a folder", folder.string());
  if (!is_there(config_path())) {
    throw UserError("{} has no config.json, so it is not a model folder", folder.string());
  }
  if (is_there(folder / single_name)) {
    open_single(folder / single_name);
  } else if (is_there(folder / index_name)) {
    open_shards(folder / index_name);
  } else {
    throw UserError("{} has neither {} nor {}; weights in other formats must be converted to safetensors first",
                    folder.string(), single_name, index_name);
  }
}

void ModelFolder::open_single(const std::filesystem::path& path) {
  files_.push_back(std::make_unique<SafetensorsReader>(path));
  for (const SafetensorsEntry& entry : files_.back()->entries()) {
    tensors_.emplace(entry.name, Tensor{files_.back().get(), &entry});
  }
}

void ModelFolder::open_shards(const std::filesystem::path& index) {
  const std::map<std::string, std::string> shard_of =
      parse_index(read_small_file(index, index_limit_bytes), index.string());
  std::map<std::string, const SafetensorsReader*> readers;
  for (const auto& [name, shard] : shard_of) {
    if (readers.contains(shard)) continue;
    if (!is_there(folder_ / shard)) {
      throw UserError("{} is missing: {} says that it holds tensor '{}'", (folder_ / shard).string(), index.string(),
                      shown(name));
    }
    files_.push_back(std::make_unique<SafetensorsReader>(folder_ / shard));
    readers.emplace(shard, files_.back().get());
  }
  for (const auto& [name, shard] : shard_of) {
    const SafetensorsReader* reader = readers.at(shard);
    const SafetensorsEntry* entry = reader->find(name);
    if (entry == nullptr) {
      throw UserError("{}: tensor '{}' is not in {}, where it should be", index.string(), shown(name),
                      reader->path().string());
    }
    tensors_.emplace(name, Tensor{reader, entry});
  }
  for (const auto& file : files_) {
    for (const SafetensorsEntry& entry : file->entries()) {
      const Tensor* listed = find(entry.name);
      if (listed == nullptr || listed->file != file.get()) unlisted_.push_back(entry.name);
    }
  }
}

const ModelFolder::Tensor* ModelFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::int64_t ModelFolder::tensor_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) bytes += tensor.entry->bytes;
  return bytes;
}

ModelFolderWriter::ModelFolderWriter(const std::filesystem::path& folder, std::span<const SafetensorsTensor> tensors,
                                     const std::map<std::string, std::string>& metadata, std::int64_t shard_bytes)
    : folder_(folder) {
  const std::vector<std::vector<SafetensorsTensor>> shards = cut_in_shards(tensors, shard_bytes);
  const std::string_view other_form = shards.size() == 1 ? index_name : single_name;
  if (is_there(folder / other_form)) {
    throw UserError(
        "{} is there already, and would be taken for part of the model to be written; remove it or choose "
        "another folder",
        (folder / other_form).string());
  }
  for (std::size_t k = 0; k < shards.size(); ++k) {
    file_names_.push_back(shards.size() == 1 ? std::string(single_name)
                                             : fmt::format("model-{:05}-of-{:05}.safetensors", k + 1, shards.size()));
    files_.push_back(std::make_unique<SafetensorsWriter>(folder / file_names_.back(), shards[k], metadata));
    for (const SafetensorsTensor& tensor : shards[k]) {
      const bool added = file_of_.emplace(tensor.name, k).second;
      SPILLWAY_CHECK(added, "tensor '{}' twice", tensor.name);
    }
  }
}

void ModelFolderWriter::write(std::string_view name, std::int64_t byte_begin, std::span<const std::byte> from) {
  const auto found = file_of_.find(name);
  SPILLWAY_CHECK(found != file_of_.end(), "no tensor '{}' in {}", name, folder_.string());
  files_[found->second]->write(name, byte_begin, from);
}

void ModelFolderWriter::finish() {
  for (const auto& file : files_) file->seal();
  for (const auto& file : files_) file->finish();
  if (files_.size() > 1) write_file_atomically(folder_ / index_name, index_text());
}

std::string ModelFolderWriter::index_text() const {
  std::int64_t total_bytes = 0;
  auto weight_map = nlohmann::json::object();
  for (std::size_t k = 0; k < files_.size(); ++k) {
    for (const SafetensorsEntry& entry : files_[k]->entries()) {
      total_bytes += entry.bytes;
      weight_map[entry.name] = file_names_[k];
    }
  }
  return nlohmann::json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", std::move(weight_map)}}.dump(2) +
         "\n";
}

}  // namespace spillway
