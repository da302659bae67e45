// Whatever happens to a run and whenever, what is found afterwards is the last commit that was durable or the one under
// way, whole: on a disk that loses and reorders what was not flushed, at every point of the protocol and at every
// operation; when the process dies and the disk does not; when the disk fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <random>

#include "commit_world.h"
#include "scratch_folder.h"
#include "store/simulated_disk.h"

namespace spillway {
namespace {

struct Setting {
  int files = 1;
  std::int64_t retained = 1;
};

struct Death {
  std::int64_t at_operation = -1;
  std::optional<CommitPoint> at_point = {};
  int occurrence = 0;  // of the point
  bool power_loss = true;
  std::int64_t fail_at = -1;  // instead of dying: the disk fails
  int error = 0;
  bool fail_after = false;
  double short_share = 0;
};

// A run over several processes, on the same files.
class Lives {
 public:
  Lives(const Setting& setting, std::uint64_t seed) : setting_(setting), random_(seed) {}

  // One process: opens what is there, checks it, goes on for some steps, and dies. Returns the operations it made.
  std::int64_t live(const Death& death, int steps) {
    SimulatedDisk& disk = powered_disk();
    disk.set_faults({.crash_at = death.at_operation,
                     .fail_at = death.fail_at,
                     .error = death.error,
                     .fail_after = death.fail_after,
                     .short_share = death.short_share});
    try {
      train(disk, death, steps);
    } catch (const DeviceError& error) {
      EXPECT_TRUE(disk.crashed() || death.fail_at >= 0 || death.at_point) << error.what();
    }
    if (death.power_loss) disk.crash();
    return disk.operations();
  }

  // Everything that is there is whole, and nothing durable is gone. On a disk that works.
  void check() {
    const std::vector<SlotSet> sets = find_slot_sets({folder_.path()});
    if (sets.empty()) {
      EXPECT_EQ(durable_step_, 0);
      return;
    }
    SimulatedDisk& disk = powered_disk();
    disk.set_faults({});
    const auto slots = SlotStore::open(sets.front(), &disk.calls());
    take_up(*slots, read_catalogue(*slots));
  }

 private:
  // The disk outlives processes; after a power loss there is another one.
  SimulatedDisk& powered_disk() {
    if (!disk_ || disk_->crashed()) disk_ = std::make_unique<SimulatedDisk>(random_());
    return *disk_;
  }

  void train(SimulatedDisk& disk, const Death& death, int steps) {
    const std::unique_ptr<SlotStore> slots = open_or_make(disk.calls());
    const std::unique_ptr<IoEngine> engine = disk.make_engine();
    slots->attach(*engine);
    const OpenedCatalogue opened = read_catalogue(*slots);
    take_up(*slots, opened);
    if (testing::Test::HasFatalFailure()) return;
    std::atomic<std::int64_t> durable = durable_step_;
    pending_.clear();
    int seen = 0;
    CommitterOptions options{.retained_commits = setting_.retained};
    options.on_point = [&](CommitPoint point, int) {
      if (point == CommitPoint::durable) durable = take_pending();
      if (death.at_point != point || seen++ != death.occurrence) return;
      if (death.power_loss) disk.crash();
      throw DeviceError("the process ends at the point '{}'", name_of(point));
    };
    CommittingRun run(world_, *slots, opened, options);
    try {
      for (int i = 0; i < steps; ++i) step_once(run, *engine);
      run.committer().wait();
    } catch (const DeviceError&) {
      durable_step_ = durable;
      throw;
    }
    durable_step_ = durable;
  }

  std::unique_ptr<SlotStore> open_or_make(DiskCalls& calls) {
    const std::vector<SlotSet> sets = find_slot_sets({folder_.path()});
    EXPECT_LE(sets.size(), 1U);
    if (!sets.empty() && sets.front().complete()) return SlotStore::open(sets.front(), &calls);
    SlotStoreOptions options = world_.options(folder_.path(), setting_.files, setting_.retained);
    options.calls = &calls;
    return std::make_unique<SlotStore>(options);
  }

  // The newest commit is the last durable one or one that was pending, and every retained one is whole.
  void take_up(SlotStore& slots, const OpenedCatalogue& opened) {
    slots.grow(slots.slot_count(), world_.options("", setting_.files, setting_.retained).reserved_slots);
    const std::int64_t found = opened.commits.empty() ? 0 : opened.commits.back().entry.step;
    ASSERT_TRUE(found >= durable_step_ && found <= submitted_step_)
        << "found step " << found << ", durable " << durable_step_ << ", submitted " << submitted_step_;
    for (const RetainedCommit& commit : opened.commits) {
      const Manifest manifest = read_manifest(slots, commit.entry);
      EXPECT_EQ(manifest.facts.run, fmt::format("step {}", commit.entry.step));
      ASSERT_TRUE(verify_commit(slots, manifest).faults.empty());
      world_.expect_versions(slots, manifest, history_.at(commit.entry.step));
    }
    const auto least = std::min<std::int64_t>(setting_.retained, found);
    ASSERT_GE(std::ssize(opened.commits), least);
    step_ = durable_step_ = found;
    submitted_step_ = found;
  }

  void step_once(CommittingRun& run, IoEngine& engine) {
    const std::int64_t step = step_ + 1;
    for (std::size_t b = 0; b < world_.bundles(); ++b) {
      // The first step of a process writes all it loaded; bundle 2 is left out of the first ones.
      if (run.versions()[b] != 0 && random_() % 3 == 0) continue;
      if (b == 2 && step < 3 && history_[step_].size() <= b) continue;
      run.write(b, ++last_version_, random_() % 2 == 0 ? &engine : nullptr);
    }
    history_[step] = run.versions();
    CommitRequest request = run.request(step);
    if (random_() % 2 == 0) run.committer().wait();  // otherwise it may stand behind the one before
    submitted_step_ = step;
    {
      const std::lock_guard lock(mutex_);
      pending_.push_back(step);
    }
    run.committer().submit(std::move(request));
    step_ = step;
  }

  // The commit thread: the oldest pending commit.
  std::int64_t take_pending() {
    const std::lock_guard lock(mutex_);
    const std::int64_t step = pending_.front();
    pending_.pop_front();
    return step;
  }

  Setting setting_;
  std::mt19937_64 random_;
  std::mutex mutex_;
  std::deque<std::int64_t> pending_;
  ScratchFolder folder_{ScratchFolder::in_memory()};
  std::unique_ptr<SimulatedDisk> disk_;
  CommitWorld world_;
  std::map<std::int64_t, Versions> history_ = {{0, Versions(4, 0)}};
  std::int64_t step_ = 0;
  std::int64_t durable_step_ = 0;
  std::int64_t submitted_step_ = 0;
  std::uint64_t last_version_ = 0;
};

constexpr Setting settings[] = {{1, 1}, {1, 2}, {3, 1}, {2, 3}};

class CheckpointCrash : public testing::Test {
 protected:
  static std::uint64_t seed() {
    const std::uint64_t seed = std::random_device{}();
    std::cout << "seed " << seed << "\n";
    return seed;
  }
};

TEST_F(CheckpointCrash, PowerLossAtEveryPointOfTheProtocol) {
  const std::uint64_t seed = this->seed();
  std::mt19937_64 random(seed);
  int deaths = 0;
  for (const Setting& setting : settings) {
    for (int point = 0; point < commit_points; ++point) {
      for (int occurrence = 0; occurrence < 4; ++occurrence) {
        Lives lives(setting, random());
        // Three processes, each dies at the point; the last one's state is looked at with a good disk.
        for (int life = 0; life < 3; ++life, ++deaths) {
          lives.live({.at_point = static_cast<CommitPoint>(point), .occurrence = occurrence}, 5);
          ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << ", death " << deaths;
        }
        lives.check();
        ASSERT_FALSE(HasFailure()) << "seed " << seed << ", death " << deaths;
      }
    }
  }
  std::cout << deaths << " power losses at points of the protocol\n";
}

TEST_F(CheckpointCrash, PowerLossAtEveryOperation) {
  const std::uint64_t seed = this->seed();
  std::mt19937_64 random(seed);
  int deaths = 0;
  for (const Setting& setting : settings) {
    Lives whole(setting, random());
    const std::int64_t operations = whole.live({.power_loss = true}, 4);
    for (std::int64_t at = 0; at < operations; ++at, ++deaths) {
      Lives lives(setting, random());
      lives.live({.at_operation = at}, 4);
      lives.live({.at_operation = static_cast<std::int64_t>(random() % 40)}, 3);
      lives.check();
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ", operation " << at << " of " << operations;
    }
  }
  std::cout << 2 * deaths << " power losses at operations\n";
}

// kill -9: what was written stays, what was not flushed is flushed by nobody, and the power may go later.
TEST_F(CheckpointCrash, DeathOfTheProcessAndOfThePowerInTurn) {
  const std::uint64_t seed = this->seed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 40; ++round) {
    Lives lives(settings[random() % std::size(settings)], random());
    for (int life = 0; life < 6; ++life) {
      Death death;
      if (random() % 2 == 0) death.at_operation = static_cast<std::int64_t>(random() % 60);
      death.at_point = static_cast<CommitPoint>(random() % commit_points);
      death.occurrence = static_cast<int>(random() % 6);
      death.power_loss = random() % 2 == 0;
      death.short_share = random() % 2 == 0 ? 0.3 : 0;
      lives.live(death, static_cast<int>(1 + random() % 5));
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ", round " << round << ", life " << life;
    }
    lives.check();
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ", round " << round;
  }
}

// A process that was killed with its superblocks written and not flushed: the next one uses what they make free only
// once they are durable.
TEST_F(CheckpointCrash, AKillBeforeTheLastFlushAndThenAPowerLoss) {
  const std::uint64_t seed = this->seed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    Lives lives({1 + round % 2, 1}, random());
    lives.live({.at_point = CommitPoint::superblocks_written, .occurrence = 2, .power_loss = false}, 5);
    lives.live({.at_operation = static_cast<std::int64_t>(1 + random() % 16)}, 2);
    lives.check();
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ", round " << round;
  }
}

TEST_F(CheckpointCrash, AFailingDiskStopsTheRunWithTheLastCommitIntact) {
  const std::uint64_t seed = this->seed();
  std::mt19937_64 random(seed);
  for (const int error : {EIO, ENOSPC}) {
    for (const bool fail_after : {false, true}) {
      const Setting setting = settings[random() % std::size(settings)];
      Lives whole(setting, random());
      const std::int64_t operations = whole.live({.power_loss = false}, 3);
      for (std::int64_t at = 0; at < operations; ++at) {
        Lives lives(setting, random());
        lives.live({.power_loss = random() % 2 == 0, .fail_at = at, .error = error, .fail_after = fail_after}, 3);
        lives.live({}, 3);  // space was freed, or the disk replaced
        lives.check();
        ASSERT_FALSE(HasFailure()) << "seed " << seed << ", operation " << at << " of " << operations;
      }
    }
  }
}

}  // namespace
}  // namespace spillway
