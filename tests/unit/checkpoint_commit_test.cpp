// Commits on files that are there: which are retained, who may still read them, and what is told of files that changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "checkpoint/manifest_slots.h"
#include "commit_world.h"
#include "scratch_folder.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointCommit : public testing::Test {
 protected:
  // A run of some steps, each of which writes every bundle but the third in step 2, and commits.
  void commit_steps(int files, std::int64_t retained, std::int64_t steps) {
    SlotStore slots(world_.options(folder_.path(), files, retained));
    CommittingRun run(world_, slots, {}, {.retained_commits = retained});
    for (std::int64_t step = 1; step <= steps; ++step) commit_step(run, step);
    run.committer().wait();
  }
  void commit_step(CommittingRun& run, std::int64_t step) {
    for (std::size_t b = 0; b < world_.bundles(); ++b) {
      if (step != 2 || b != 2) run.write(b, static_cast<std::uint64_t>(10 * step) + b, nullptr);
    }
    versions_[step] = run.versions();
    run.commit(step);
  }
  std::unique_ptr<SlotStore> open() const { return SlotStore::open(find_slot_sets({folder_.path()}).front()); }

  static std::vector<std::int64_t> steps_of(const OpenedCatalogue& opened) {
    std::vector<std::int64_t> steps;
    for (const RetainedCommit& commit : opened.commits) steps.push_back(commit.entry.step);
    return steps;
  }
  static std::vector<std::int64_t> steps_of(const std::vector<CommitEntry>& commits) {
    std::vector<std::int64_t> steps;
    for (const CommitEntry& entry : commits) steps.push_back(entry.step);
    return steps;
  }
  static void flip(const fs::path& path, std::int64_t offset, int bit) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const char byte = static_cast<char>(file.get() ^ (1 << bit));
    file.seekp(offset);
    file.put(byte);
  }

  ScratchFolder folder_{ScratchFolder::in_memory()};
  CommitWorld world_;
  std::map<std::int64_t, Versions> versions_;
};

TEST_F(CheckpointCommit, TheLatestAreRetainedAndWhole) {
  commit_steps(2, 3, 5);
  const auto slots = open();
  const OpenedCatalogue opened = read_catalogue(*slots);
  EXPECT_THAT(opened.passed_over, testing::IsEmpty());
  EXPECT_THAT(steps_of(opened), ElementsAre(3, 4, 5));
  std::vector<SlotId> held;
  for (const RetainedCommit& commit : opened.commits) {
    const Manifest manifest = read_manifest(*slots, commit.entry);
    EXPECT_EQ(manifest.facts, (CommitFacts{commit.entry.step, fmt::format("step {}", commit.entry.step)}));
    world_.expect_versions(*slots, manifest, versions_[commit.entry.step]);
    held.insert(held.end(), commit.slots.begin(), commit.slots.end());
  }
  std::sort(held.begin(), held.end());
  held.erase(std::unique(held.begin(), held.end()), held.end());
  EXPECT_EQ(slots->free_count(), slots->slot_count() - std::ssize(held));
}

// Slots of old commits come back: hundreds of commits in the space of two.
TEST_F(CheckpointCommit, ManyCommitsFitInTheCountedSpace) {
  commit_steps(1, 1, 200);
  const auto slots = open();
  EXPECT_THAT(steps_of(read_catalogue(*slots)), ElementsAre(200));
}

// Writers get ahead of a commit that takes its time, and wait instead of overwriting it.
TEST_F(CheckpointCommit, WritersWaitForAPendingCommit) {
  SlotStore slots(world_.options(folder_.path(), 1, 1));
  std::atomic<bool> late = false;
  CommitterOptions options{.retained_commits = 1};
  options.on_point = [&](CommitPoint point, int) {
    if (point != CommitPoint::superblocks_written) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    late = true;
  };
  CommittingRun run(world_, slots, {}, options);
  for (std::int64_t step = 1; step <= 20; ++step) {
    commit_step(run, step);
    for (std::size_t b = 0; b < world_.bundles(); ++b) run.write(b, 1000 + static_cast<std::uint64_t>(step), nullptr);
  }
  run.committer().wait();
  EXPECT_TRUE(late);
  EXPECT_THAT(steps_of(run.committer().commits()), ElementsAre(20));
}

TEST_F(CheckpointCommit, ALeasedCommitStaysReadable) {
  SlotStore slots(world_.options(folder_.path(), 1, 2));  // room for the lease
  CommittingRun run(world_, slots, {}, {.retained_commits = 1});
  commit_step(run, 1);
  run.committer().wait();
  const CommitEntry first = run.committer().commits().back();
  const std::unique_ptr<CommitLease> lease = run.committer().lease(first.generation);
  ASSERT_NE(lease, nullptr);
  for (std::int64_t step = 2; step <= 6; ++step) commit_step(run, step);
  run.committer().wait();
  EXPECT_THAT(steps_of(run.committer().commits()), ElementsAre(6));
  world_.expect_versions(slots, read_manifest(slots, lease->entry()), versions_[1]);
  EXPECT_EQ(run.committer().lease(first.generation), nullptr);  // it is retained no longer
}

TEST_F(CheckpointCommit, PruningAndForgettingAreDurable) {
  {
    SlotStore slots(world_.options(folder_.path(), 2, 4));
    CommittingRun run(world_, slots, {}, {.retained_commits = 4});
    for (std::int64_t step = 1; step <= 4; ++step) commit_step(run, step);
    run.committer().wait();
    const std::int64_t free = slots.free_count();
    run.committer().forget_after(run.committer().commits()[2].generation);
    EXPECT_THAT(steps_of(run.committer().commits()), ElementsAre(1, 2, 3));
    run.committer().prune(2);
    EXPECT_THAT(steps_of(run.committer().commits()), ElementsAre(2, 3));
    EXPECT_GT(slots.free_count(), free);
  }
  const auto slots = open();
  const OpenedCatalogue opened = read_catalogue(*slots);
  EXPECT_THAT(steps_of(opened), ElementsAre(2, 3));
  // The next process goes on with higher generations, and with its own retention.
  CommittingRun run(world_, *slots, opened, {.retained_commits = 2});
  slots->grow(slots->slot_count(), world_.options("", 2, 4).reserved_slots);
  commit_step(run, 4);
  run.committer().wait();
  EXPECT_THAT(steps_of(run.committer().commits()), ElementsAre(3, 4));
  EXPECT_GT(run.committer().commits().back().generation, opened.last_generation);
}

TEST_F(CheckpointCommit, AFailureStopsTheStoreAndIsToldToAll) {
  SlotStore slots(world_.options(folder_.path(), 1, 1));
  CommitterOptions options{.retained_commits = 1};
  options.on_point = [](CommitPoint point, int) {
    if (point == CommitPoint::flushed) throw DeviceError("the disk is gone");
  };
  CommittingRun run(world_, slots, {}, options);
  commit_step(run, 1);
  EXPECT_THROW(run.committer().wait(), DeviceError);
  EXPECT_THROW(run.committer().check(), DeviceError);
  EXPECT_THROW(run.commit(2), DeviceError);
  EXPECT_THROW(slots.allocate(), DeviceError);
  EXPECT_THAT(run.committer().commits(), testing::IsEmpty());
}

// Every block of every file that a commit is made of, one bit at a time: it is detected when the commit is found or
// when it is read, and the sentence names the file and the place.
TEST_F(CheckpointCommit, AFlippedBitAnywhereIsDetectedAndNamed) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  commit_steps(2, 1, 3);
  struct Region {
    std::int32_t file;
    std::int64_t begin;
    std::int64_t bytes;
    std::string holds;  // of data
  };
  std::vector<Region> regions;
  const SlotSet set = find_slot_sets({folder_.path()}).front();
  {
    const auto slots = open();
    const OpenedCatalogue opened = read_catalogue(*slots);
    const Manifest manifest = read_manifest(*slots, opened.commits.front().entry);
    for (std::int32_t f = 0; f < 2; ++f) {
      regions.push_back({f, 0, slot_file_block_bytes, ""});
      regions.push_back({f, superblock_offset_bytes(opened.place), slot_file_block_bytes, ""});
    }
    for (std::size_t g = 0; g < manifest.groups.size(); ++g) {
      for (std::int64_t e = 0; e < manifest.groups[g].extents; ++e) {
        const ManifestExtent& extent = manifest.extents[static_cast<std::size_t>(manifest.groups[g].first_extent + e)];
        const SlotId slot = slots->slot_at(extent.file, extent.index);
        regions.push_back(
            {extent.file, slots->location(slot).offset_bytes, extent.bytes, g == 2 ? "layer.weight" : "["});
      }
    }
    for (const SlotId slot : opened.commits.front().slots) {
      const auto [file, index] = slots->place_of(slot);
      const bool data = std::any_of(manifest.extents.begin(), manifest.extents.end(),
                                    [&](const ManifestExtent& e) { return e.file == file && e.index == index; });
      const std::int64_t bytes = manifest_slot_header_bytes + opened.commits.front().entry.manifest_bytes;
      if (!data) regions.push_back({file, slots->location(slot).offset_bytes, round_up(bytes, 4096), ""});
    }
  }
  EXPECT_GE(regions.size(), 16U);
  for (const Region& region : regions) {
    for (int i = 0; i < 12; ++i) {
      const std::int64_t within = i == 0 ? 0
                                  : i == 1
                                      ? region.bytes - 1
                                      : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(region.bytes));
      const int bit = static_cast<int>(random() % 8);
      const fs::path& path = set.paths[static_cast<std::size_t>(region.file)];
      flip(path, region.begin + within, bit);
      std::string told;
      try {
        const auto slots = open();
        const OpenedCatalogue opened = read_catalogue(*slots);
        for (const std::string& text : opened.passed_over) told += text + "\n";
        for (const RetainedCommit& commit : opened.commits) {
          for (const std::string& text : verify_commit(*slots, read_manifest(*slots, commit.entry)).faults)
            told += text;
        }
      } catch (const DeviceError& error) {
        told = error.what();
      }
      EXPECT_THAT(told, AllOf(HasSubstr(path.string()), HasSubstr(fmt::format("offset {}", region.begin)),
                              HasSubstr(region.holds)))
          << "bit " << bit << " of byte " << within;
      flip(path, region.begin + within, bit);
    }
  }
  const auto slots = open();
  EXPECT_THAT(read_catalogue(*slots).passed_over, testing::IsEmpty());
}

TEST_F(CheckpointCommit, AReaderRefusesAChangedSlotAndNamesTheTensor) {
  commit_steps(1, 1, 1);
  const auto slots = open();
  const Manifest manifest = read_manifest(*slots, read_catalogue(*slots).commits.front().entry);
  const ManifestPiece& piece = manifest.pieces.back();
  const ManifestExtent& extent =
      manifest.extents[static_cast<std::size_t>(manifest.groups[static_cast<std::size_t>(piece.group)].first_extent)];
  const std::int64_t offset = slots->location(slots->slot_at(extent.file, extent.index)).offset_bytes;
  flip(slots->path(0), offset + 5, 1);
  std::vector<std::byte> bytes(static_cast<std::size_t>(manifest.bytes_of(piece)));
  try {
    PieceReader(*slots, manifest).read(piece, 0, bytes);
    FAIL() << "not detected";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(manifest.describe(piece)), HasSubstr(slots->path(0).string()),
                                    HasSubstr(fmt::format("offset {}", offset))));
  }
  TensorReader reader(*slots, manifest);
  EXPECT_EQ(reader.find("nothing"), nullptr);
  EXPECT_THROW(reader.read("nothing", 0, bytes), UserError);
  EXPECT_THROW(reader.read("norm", 90, std::span(bytes).first(40)), UserError);
}

// A slot that is held is not read again, so what happens to its file meanwhile is not seen.
TEST_F(CheckpointCommit, AReaderHoldsAsManySlotsAsAreReadInTurn) {
  commit_steps(1, 1, 1);
  const auto slots = open();
  const Manifest manifest = read_manifest(*slots, read_catalogue(*slots).commits.front().entry);
  std::vector<ManifestPiece> pieces;  // one of each of two groups that were written
  for (const ManifestPiece& piece : manifest.pieces) {
    const bool written = manifest.groups[static_cast<std::size_t>(piece.group)].extents > 0;
    if (written && (pieces.empty() || pieces.back().group != piece.group)) pieces.push_back(piece);
  }
  ASSERT_GE(pieces.size(), 2U);
  pieces.resize(2);
  std::vector<std::byte> first(8);
  const auto read_both = [&](PieceReader& reader) {
    for (const ManifestPiece& piece : pieces) reader.read(piece, 0, first);
  };
  PieceReader one(*slots, manifest);
  PieceReader two(*slots, manifest, 2);
  read_both(one);
  read_both(two);
  for (const ManifestPiece& piece : pieces) {
    const ManifestExtent& extent =
        manifest.extents[static_cast<std::size_t>(manifest.groups[static_cast<std::size_t>(piece.group)].first_extent +
                                                  piece.offset_bytes / manifest.slot_bytes)];
    flip(slots->path(0), slots->location(slots->slot_at(extent.file, extent.index)).offset_bytes + 5, 1);
  }
  EXPECT_THROW(read_both(one), DeviceError);
  EXPECT_NO_THROW(read_both(two));
}

// With two commits retained, the older one is there when the newer one's manifest is not.
TEST_F(CheckpointCommit, AnOlderCommitServesWhenTheNewestIsDamaged) {
  commit_steps(1, 2, 3);
  std::int64_t offset = 0;
  {
    const auto slots = open();
    const CommitEntry newest = read_catalogue(*slots).commits.back().entry;
    offset = slots->location(slots->slot_at(newest.file, newest.index)).offset_bytes;
  }
  flip(find_slot_sets({folder_.path()}).front().paths[0], offset + 100, 3);
  const auto slots = open();
  const OpenedCatalogue opened = read_catalogue(*slots);
  EXPECT_THAT(steps_of(opened), ElementsAre(2));
  EXPECT_THAT(opened.passed_over,
              ElementsAre(AllOf(HasSubstr("of step 3"), HasSubstr(fmt::format("offset {}", offset)))));
  world_.expect_versions(*slots, read_manifest(*slots, opened.commits.back().entry), versions_[2]);
}

// A file that is older than the others, as after a copy or a disk that lied: what all files agree on counts.
TEST_F(CheckpointCommit, WhatOnlySomeFilesHaveDoesNotCount) {
  {
    SlotStore slots(world_.options(folder_.path(), 2, 2));
    CommittingRun run(world_, slots, {}, {.retained_commits = 2});
    commit_step(run, 1);
    commit_step(run, 2);
    run.committer().wait();
    fs::copy_file(slots.path(1), folder_ / "copy");
    commit_step(run, 3);
    run.committer().wait();
    fs::rename(folder_ / "copy", slots.path(1));
  }
  const auto slots = open();
  const OpenedCatalogue opened = read_catalogue(*slots);
  EXPECT_THAT(opened.passed_over, testing::Contains(HasSubstr(slots->path(1).string())));
  EXPECT_EQ(steps_of(opened).back(), 2);
  world_.expect_versions(*slots, read_manifest(*slots, opened.commits.back().entry), versions_[2]);
}

TEST_F(CheckpointCommit, ACutFileIsDetected) {
  commit_steps(2, 1, 2);
  const SlotSet set = find_slot_sets({folder_.path()}).front();
  const auto size = static_cast<std::int64_t>(fs::file_size(set.paths[1]));
  for (std::int64_t bytes = size - CommitWorld::page_bytes / 2; bytes > 0; bytes -= CommitWorld::page_bytes * 2) {
    fs::resize_file(set.paths[1], static_cast<std::uintmax_t>(bytes));
    std::string told;
    try {
      const auto slots = open();
      const OpenedCatalogue opened = read_catalogue(*slots);
      for (const std::string& text : opened.passed_over) told += text + "\n";
      // Slots at the end may be unused: then the commit is whole.
      for (const RetainedCommit& commit : opened.commits) {
        world_.expect_versions(*slots, read_manifest(*slots, commit.entry), versions_[commit.entry.step]);
        if (commit.entry.step == 2) told += set.paths[1].string();
      }
    } catch (const DeviceError& error) {
      told += error.what();
    }
    EXPECT_THAT(told, HasSubstr(set.paths[1].string())) << bytes << " of " << size << " bytes";
  }
}

TEST_F(CheckpointCommit, ManifestsLongerThanASlotAreChained) {
  SlotStoreOptions asked = world_.options(folder_.path(), 2, 1);
  const std::int64_t more = 6 * 2;
  asked.slot_count += more;
  asked.reserved_slots += more;
  SlotStore slots(asked);
  CommittingRun run(world_, slots, {}, {.retained_commits = 1});
  CommitRequest request = run.request(1);
  request.facts.run.assign(5 * CommitWorld::page_bytes, 'x');
  run.committer().submit(std::move(request));
  run.committer().wait();
  const CommitEntry entry = run.committer().commits().back();
  EXPECT_EQ(read_manifest(slots, entry).facts.run, std::string(5 * CommitWorld::page_bytes, 'x'));
}

}  // namespace
}  // namespace spillway
