#include "checkpoint/catalogue.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "checkpoint/manifest_slots.h"
#include "checkpoint/superblock.h"
#include "store/aligned_buffer.h"

namespace spillway {
namespace {

// The superblocks of one file, by place.
struct Places {
  std::array<std::optional<Superblock>, superblock_places> found;
  bool blank = true;  // nothing was ever written there
};

std::string name_of(const CommitEntry& entry) {
  return fmt::format("commit {} of step {}", entry.generation, entry.step);
}

Places read_places(const SlotStore& slots, std::int32_t file, std::vector<std::string>& passed_over) {
  Places places;
  const AlignedBuffer block(slot_file_block_bytes);
  for (int place = 0; place < superblock_places; ++place) {
    slots.read_block(file, superblock_offset_bytes(place), block.span());
    auto& found = places.found[static_cast<std::size_t>(place)];
    found = read_superblock(block.span(), slots.run(), file, slots.file_count());
    const bool blank =
        std::all_of(block.span().begin(), block.span().end(), [](std::byte b) { return b == std::byte{0}; });
    places.blank = places.blank && blank;
    if (found || blank) continue;
    passed_over.push_back(fmt::format(
        "'{}': the superblock at offset {} does not verify: a commit was interrupted, or the disk changed it",
        slots.path(file).string(), superblock_offset_bytes(place)));
  }
  return places;
}

struct Candidate {
  Superblock superblock;
  int place = 0;  // of the first file
};

// Where the superblock is missing, in words; nothing when all files have it.
std::optional<std::string> missing_from(const Superblock& superblock, const std::vector<Places>& files,
                                        const SlotStore& slots) {
  for (std::size_t f = 0; f < files.size(); ++f) {
    const auto& found = files[f].found;
    if (std::find(found.begin(), found.end(), superblock) != found.end()) continue;
    return slots.path(static_cast<std::int32_t>(f)).string();
  }
  return std::nullopt;
}

// Those that all files have, the newest first. One that only some have is told.
std::vector<Candidate> candidates_of(const std::vector<Places>& files, const SlotStore& slots,
                                     std::vector<std::string>& passed_over) {
  std::vector<Candidate> candidates;
  std::vector<Superblock> told;
  for (const Places& places : files) {
    for (int place = 0; place < superblock_places; ++place) {
      const auto& superblock = places.found[static_cast<std::size_t>(place)];
      if (!superblock || std::find(told.begin(), told.end(), *superblock) != told.end()) continue;
      told.push_back(*superblock);
      const auto missing = missing_from(*superblock, files, slots);
      if (!missing) {
        candidates.push_back({*superblock, place});
      } else {
        passed_over.push_back(
            fmt::format("catalogue {} did not reach '{}': a commit was interrupted, or a file is older",
                        superblock->generation, *missing));
      }
    }
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.superblock.generation > b.superblock.generation; });
  return candidates;
}

FoundManifest find_manifest(const SlotStore& slots, const CommitEntry& entry) {
  const std::string name = name_of(entry);
  if (entry.file < 0 || entry.file >= slots.file_count() || entry.manifest_bytes < 1) {
    throw DeviceError("{}: its catalogue says {} bytes in file {} of {}: the files were mixed up", name,
                      entry.manifest_bytes, entry.file, slots.file_count());
  }
  if (entry.manifest_bytes > slots.slot_count() * slots.slot_bytes()) {
    throw DeviceError("{}: its catalogue says {} bytes of manifest, more than the files hold: they were changed", name,
                      entry.manifest_bytes);
  }
  const SlotId first = slots.slot_at(entry.file, entry.index);
  if (first == SlotId::none) {
    throw DeviceError("{}: its manifest lies beyond the end of '{}': the file was cut short", name,
                      slots.path(entry.file).string());
  }
  FoundManifest found =
      read_manifest_slots(slots, first, entry.manifest_bytes, entry.manifest_checksum, entry.generation, name);
  if (found.manifest.facts.step != entry.step) {
    throw DeviceError("{}: its manifest says step {}: the files were mixed up", name, found.manifest.facts.step);
  }
  return found;
}

RetainedCommit adopt(SlotStore& slots, const CommitEntry& entry) {
  FoundManifest found = find_manifest(slots, entry);
  RetainedCommit commit{entry, {}};
  for (const ManifestExtent& extent : found.manifest.extents) {
    commit.slots.push_back(slots.slot_at(extent.file, extent.index));
    slots.adopt(commit.slots.back(), extent.checksum, false);
  }
  for (const SlotId slot : found.slots) {
    commit.slots.push_back(slot);
    slots.adopt(slot, 0, true);
  }
  return commit;
}

}  // namespace

Manifest read_manifest(const SlotStore& slots, const CommitEntry& entry) {
  return find_manifest(slots, entry).manifest;
}

OpenedCatalogue read_catalogue(SlotStore& slots) {
  // What is read must be durable before slots of older commits are used again: a process that was killed may have
  // written superblocks and not flushed them.
  slots.flush();
  OpenedCatalogue opened;
  std::vector<Places> files;
  for (std::int32_t f = 0; f < slots.file_count(); ++f) files.push_back(read_places(slots, f, opened.passed_over));
  for (const Places& places : files) {
    for (const auto& superblock : places.found) {
      if (superblock) opened.last_generation = std::max(opened.last_generation, superblock->generation);
    }
  }
  // The first superblocks are written one after the other.
  opened.had_commits = opened.last_generation > 1 ||
                       std::none_of(files.begin(), files.end(), [](const Places& places) { return places.blank; });
  for (const Candidate& candidate : candidates_of(files, slots, opened.passed_over)) {
    opened.place = candidate.place;
    const auto& commits = candidate.superblock.commits;
    for (auto entry = commits.rbegin(); entry != commits.rend(); ++entry) {
      try {
        opened.commits.insert(opened.commits.begin(), adopt(slots, *entry));
      } catch (const DeviceError& error) {
        opened.passed_over.emplace_back(error.what());
      }
    }
    if (!opened.commits.empty()) break;
  }
  return opened;
}

}  // namespace spillway
