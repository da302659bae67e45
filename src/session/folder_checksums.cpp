#include "session/folder_checksums.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/atomic_file.h"
#include "formats/json_object.h"
#include "formats/safetensors.h"
#include "store/checksum.h"

namespace spillway {
namespace {

constexpr std::int64_t block_bytes = 4 * mib;
constexpr std::int64_t checksums_limit_bytes = 256 * mib;

std::vector<std::string> blocks_of(const std::filesystem::path& path) {
  const File file = File::open_to_read(path);
  std::vector<std::byte> block;
  std::vector<std::string> blocks;
  const std::int64_t bytes = file.size();
  for (std::int64_t at = 0; at < bytes; at += block_bytes) {
    block.resize(static_cast<std::size_t>(std::min(block_bytes, bytes - at)));
    file.read(at, block);
    file.drop_cache(at, block_bytes);
    blocks.push_back(fmt::format("{:016x}", checksum_of(block)));
  }
  return blocks;
}

// ", in tensor NAME" of what lies in this range of a safetensors file whose header can be read.
std::string tensor_at(const std::filesystem::path& path, std::int64_t begin, std::int64_t end) {
  if (path.extension() != ".safetensors") return {};
  try {
    const SafetensorsReader reader(path);
    const std::int64_t data =
        File::open_to_read(path).size() -
        (reader.entries().empty() ? 0 : reader.entries().back().offset + reader.entries().back().bytes);
    std::string names;
    for (const SafetensorsEntry& entry : reader.entries()) {
      if (data + entry.offset < end && data + entry.offset + entry.bytes > begin)
        names += (names.empty() ? "" : ", ") + entry.name;
    }
    return names.empty() ? "" : fmt::format(", of tensors {}", names);
  } catch (const Error&) {
    return ", of its header";
  }
}

std::vector<std::string> faults_of(const std::filesystem::path& path, const nlohmann::json& wanted) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return {fmt::format("{} is missing", path.string())};
  const auto bytes = wanted.at("bytes").get<std::int64_t>();
  if (static_cast<std::int64_t>(size) != bytes)
    return {fmt::format("{} has {} bytes, and was written with {}", path.string(), size, bytes)};
  const std::vector<std::string> now = blocks_of(path);
  const auto then = wanted.at("xxh3").get<std::vector<std::string>>();
  std::vector<std::string> faults;
  for (std::size_t b = 0; b < now.size(); ++b) {
    if (b < then.size() && then[b] == now[b]) continue;
    const std::int64_t begin = static_cast<std::int64_t>(b) * block_bytes;
    const std::int64_t end = std::min(begin + block_bytes, bytes);
    faults.push_back(fmt::format("{}: bytes {} to {}{} are not what was written", path.string(), begin, end,
                                 tensor_at(path, begin, end)));
  }
  return faults;
}

}  // namespace

void write_checksums(const std::filesystem::path& folder) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == checksums_name) continue;
    files[name] = {{"bytes", entry.file_size()}, {"xxh3", blocks_of(entry.path())}};
  }
  write_file_atomically(folder / checksums_name,
                        nlohmann::json{{"block_bytes", block_bytes}, {"files", files}}.dump(1) + '\n');
}

std::vector<std::string> verify_checksums(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / checksums_name;
  std::vector<std::string> faults;
  try {
    const nlohmann::json json = nlohmann::json::parse(read_small_file(path, checksums_limit_bytes));
    if (json.at("block_bytes") != block_bytes)
      throw UserError("{}: its blocks are not of {} bytes", path.string(), block_bytes);
    for (const auto& [name, wanted] : json.at("files").items()) {
      const std::vector<std::string> found = faults_of(folder / name, wanted);
      faults.insert(faults.end(), found.begin(), found.end());
    }
  } catch (const nlohmann::json::exception& error) {
    throw UserError("{}: not a file of checksums ({})", path.string(), text_of(error));
  }
  return faults;
}

}  // namespace spillway
