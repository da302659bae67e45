#include "checkpoint/superblock.h"

#include <algorithm>

#include "base/error.h"
#include "store/byte_fields.h"
#include "store/checksum.h"

namespace spillway {
namespace {

constexpr std::uint64_t superblock_magic = 0x315055534c505053;  // "SPPLSUP1"
constexpr std::uint32_t superblock_version = 1;

void write_entry(const CommitEntry& entry, FieldWriter& fields) {
  fields.put(entry.generation);
  fields.put(static_cast<std::uint64_t>(entry.step));
  fields.put(static_cast<std::uint64_t>(entry.unix_seconds));
  fields.put(static_cast<std::uint64_t>(entry.manifest_bytes));
  fields.put(entry.manifest_checksum);
  fields.put(static_cast<std::uint32_t>(entry.file));
  fields.put(static_cast<std::uint32_t>(entry.index));
}

CommitEntry read_entry(FieldReader& fields) {
  CommitEntry entry;
  entry.generation = fields.get<std::uint64_t>();
  entry.step = static_cast<std::int64_t>(fields.get<std::uint64_t>());
  entry.unix_seconds = static_cast<std::int64_t>(fields.get<std::uint64_t>());
  entry.manifest_bytes = static_cast<std::int64_t>(fields.get<std::uint64_t>());
  entry.manifest_checksum = fields.get<std::uint64_t>();
  entry.file = static_cast<std::int32_t>(fields.get<std::uint32_t>());
  entry.index = static_cast<std::int32_t>(fields.get<std::uint32_t>());
  return entry;
}

}  // namespace

void write_superblock(const Superblock& superblock, const RunId& run, std::int32_t file, std::int32_t files,
                      std::span<std::byte> block) {
  SPILLWAY_CHECK(std::ssize(superblock.commits) <= most_retained_commits, "{} commits", superblock.commits.size());
  std::fill(block.begin(), block.end(), std::byte{0});
  FieldWriter fields(block.first(block.size() - checksum_bytes));
  fields.put(superblock_magic);
  fields.put(superblock_version);
  fields.put(static_cast<std::uint32_t>(file));
  fields.put(static_cast<std::uint32_t>(files));
  fields.put(static_cast<std::uint32_t>(superblock.commits.size()));
  fields.put_bytes(std::as_bytes(std::span(run.bytes)));
  fields.put(superblock.generation);
  for (const CommitEntry& entry : superblock.commits) write_entry(entry, fields);
  SPILLWAY_CHECK(!fields.overran(), "{} commits in a block of {} bytes", superblock.commits.size(), block.size());
  FieldWriter(block.last(checksum_bytes)).put(checksum_of(block.first(block.size() - checksum_bytes)));
}

std::optional<Superblock> read_superblock(std::span<const std::byte> block, const RunId& run, std::int32_t file,
                                          std::int32_t files) {
  const auto sum = FieldReader(block.last(checksum_bytes)).get<std::uint64_t>();
  if (sum != checksum_of(block.first(block.size() - checksum_bytes))) return std::nullopt;
  FieldReader fields(block);
  const bool known = fields.get<std::uint64_t>() == superblock_magic &&
                     fields.get<std::uint32_t>() == superblock_version &&
                     fields.get<std::uint32_t>() == static_cast<std::uint32_t>(file) &&
                     fields.get<std::uint32_t>() == static_cast<std::uint32_t>(files);
  const auto commits = fields.get<std::uint32_t>();
  RunId written;
  fields.get_bytes(std::as_writable_bytes(std::span(written.bytes)));
  if (!known || written != run || commits > most_retained_commits) return std::nullopt;
  Superblock superblock;
  superblock.generation = fields.get<std::uint64_t>();
  for (std::uint32_t i = 0; i < commits; ++i) superblock.commits.push_back(read_entry(fields));
  return superblock;
}

}  // namespace spillway
