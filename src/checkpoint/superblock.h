// A superblock: the catalogue of retained commits as one block, written in place. docs/formats.md has the fields.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/catalogue.h"
#include "store/run_id.h"

namespace spillway {

struct Superblock {
  std::uint64_t generation = 0;
  std::vector<CommitEntry> commits;  // the newest last; at most most_retained_commits
  bool operator==(const Superblock&) const = default;
};

// Fills a block of slot_file_block_bytes for one file of a run.
void write_superblock(const Superblock& superblock, const RunId& run, std::int32_t file, std::int32_t files,
                      std::span<std::byte> block);

// Nothing unless the block verifies and is of this file.
std::optional<Superblock> read_superblock(std::span<const std::byte> block, const RunId& run, std::int32_t file,
                                          std::int32_t files);

}  // namespace spillway
