// The manifest as bytes: what is written is read back, and nothing else is accepted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/manifest.h"
#include "checkpoint/superblock.h"
#include "commit_world.h"
#include "scratch_folder.h"

namespace spillway {
namespace {

using testing::HasSubstr;

// Two tensors; one of them in two pieces, in two groups of which the second was never written.
Manifest small_manifest() {
  Manifest manifest;
  manifest.run = *RunId::parse("000102030405060708090a0b0c0d0e0f");
  manifest.generation = 7;
  manifest.files = 2;
  manifest.slot_bytes = 8192;
  manifest.facts = {41, "{\"seed\": 3}"};
  manifest.tensors = {{"a", DType::f32, 30, 100}, {"b.low", DType::u16, 5, 1}};
  manifest.extents = {{1, 4, 8192, 0x1122334455667788}, {0, 9, 808, 99}};
  manifest.groups = {{9000, 0, 2}, {4000, 2, 0}};
  manifest.pieces = {{1, 0, 0, 5, 0}, {0, 0, 0, 20, 16}, {0, 1, 20, 30, 0}};
  return manifest;
}

std::vector<std::byte> bytes_of(const Manifest& manifest) {
  std::vector<std::byte> bytes;
  const std::int64_t count = write_manifest(
      manifest, [&](std::span<const std::byte> portion) { bytes.insert(bytes.end(), portion.begin(), portion.end()); });
  EXPECT_EQ(count, std::ssize(bytes));
  return bytes;
}

Manifest read(std::span<const std::byte> bytes) {
  std::size_t at = 0;
  const auto source = [&](std::span<std::byte> into) {
    SPILLWAY_CHECK(at + into.size() <= bytes.size(), "{} of {} bytes", at + into.size(), bytes.size());
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), into.size(), into.begin());
    at += into.size();
  };
  return read_manifest(source, std::ssize(bytes), "commit 7");
}

std::string refusal_of(const Manifest& manifest) {
  try {
    read(bytes_of(manifest));
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("commit 7: "));
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

TEST(CheckpointManifest, ReadsBackWhatWasWritten) { EXPECT_EQ(read(bytes_of(small_manifest())), small_manifest()); }

TEST(CheckpointManifest, LongOnesAreReadInPortions) {
  Manifest manifest = small_manifest();
  manifest.facts.run.assign(100000, 'x');
  EXPECT_EQ(read(bytes_of(manifest)), manifest);
}

TEST(CheckpointManifest, WhatDoesNotFitTogetherIsRefused) {
  const auto refused = [](const auto& change, const char* words) {
    Manifest manifest = small_manifest();
    change(manifest);
    EXPECT_THAT(refusal_of(manifest), HasSubstr(words));
  };
  refused([](Manifest& m) { m.tensors[1].name = "a"; }, "occurs twice");
  refused([](Manifest& m) { m.tensors[0].rows = 31; }, "row 30 of tensor a");
  refused([](Manifest& m) { m.tensors[0].cols = 0; }, "0 columns");
  refused([](Manifest& m) { m.tensors[0].rows = m.tensors[0].cols = std::int64_t{1} << 40; }, "tensor a has");
  refused([](Manifest& m) { m.extents[1] = m.extents[0]; }, "named twice");
  refused([](Manifest& m) { m.extents[0].file = 2; }, "the file of a slot");
  refused([](Manifest& m) { m.groups[0].bytes = 20000; }, "in 2 slots");
  refused([](Manifest& m) { m.groups.pop_back(); }, "the group of a piece");
  refused([](Manifest& m) { m.pieces[1].offset_bytes = 2000; }, "goes beyond");
  refused([](Manifest& m) { m.pieces[1].offset_bytes = 8; }, "does not follow");
  refused([](Manifest& m) { m.pieces[2].row_begin = 21; }, "row 20 of tensor a");
  refused([](Manifest& m) { m.pieces[2].row_end = 31; }, "not in a tensor");
  refused([](Manifest& m) { m.pieces[0].tensor = 2; }, "the tensor of a piece");
  refused([](Manifest& m) { m.slot_bytes = 100; }, "slots have 100 bytes");
}

TEST(CheckpointManifest, EveryCutAndEveryChangedByteIsRefusedOrRead) {
  const std::vector<std::byte> whole = bytes_of(small_manifest());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_THROW(read(std::span(whole).first(bytes)), DeviceError) << bytes;
  }
  std::vector<std::byte> longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_THROW(read(longer), DeviceError);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
      std::vector<std::byte> changed = whole;
      changed[at] = static_cast<std::byte>(value);
      try {
        EXPECT_EQ(bytes_of(read(changed)), changed);  // a name, a checksum or a text
      } catch (const DeviceError&) {
      }
    }
  }
}

TEST(CheckpointManifest, TheBoundHolds) {
  const CommitWorld world;
  const ScratchFolder folder{ScratchFolder::in_memory()};
  SlotStore slots(world.options(folder.path(), 1, 1));
  SlotSnapshot snapshot;
  for (const Bundle& bundle : world.layout.bundles) {
    std::vector<SlotId> here;
    for (std::int64_t at = 0; at < bundle.bytes; at += CommitWorld::page_bytes) here.push_back(slots.allocate());
    snapshot.add(here);
  }
  Manifest manifest = manifest_of(world.state, world.layout, snapshot, slots);
  manifest.facts.run.assign(CommitWorld::run_bytes, 'x');
  EXPECT_LE(std::ssize(bytes_of(manifest)), manifest_bytes_bound(world.state, world.layout, CommitWorld::run_bytes));
  EXPECT_EQ(read(bytes_of(manifest)), manifest);
  EXPECT_EQ(manifest.tensors.size(), 3U);  // the cache is not committed
  EXPECT_EQ(manifest.groups.size(), 3U);
}

TEST(CheckpointSuperblock, EveryFlippedBitIsNoticed) {
  const RunId run = *RunId::parse("000102030405060708090a0b0c0d0e0f");
  Superblock superblock{9, {}};
  for (std::int64_t i = 0; i < most_retained_commits; ++i) {
    superblock.commits.push_back({static_cast<std::uint64_t>(i), i, 1, 2, 3, 4, 5});
  }
  std::vector<std::byte> block(slot_file_block_bytes);
  write_superblock(superblock, run, 1, 2, block);
  EXPECT_EQ(read_superblock(block, run, 1, 2), superblock);
  EXPECT_EQ(read_superblock(block, run, 0, 2), std::nullopt);
  EXPECT_EQ(read_superblock(block, run, 1, 3), std::nullopt);
  EXPECT_EQ(read_superblock(block, RunId{}, 1, 2), std::nullopt);
  for (std::size_t at = 0; at < block.size(); ++at) {
    block[at] ^= static_cast<std::byte>(1U << at % 8);
    EXPECT_EQ(read_superblock(block, run, 1, 2), std::nullopt) << at;
    block[at] ^= static_cast<std::byte>(1U << at % 8);
  }
}

}  // namespace
}  // namespace spillway
