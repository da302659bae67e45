// Makes commits durable in the background, by the protocol in checkpoint/catalogue.h.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/steady_clock.h"
#include "checkpoint/catalogue.h"
#include "state/state.h"

namespace spillway {

// The gaps of the protocol, in order; some occur once for each slot of the manifest or for each file.
enum class CommitPoint : std::uint8_t {
  begun,                  // the data has been written
  manifest_slot_written,  // once for each slot
  manifest_written,
  flushed,
  superblock_written,  // once for each file
  superblocks_written,
  durable,
  released,
};
constexpr int commit_points = 8;
std::string_view name_of(CommitPoint point);

// A commit to be made.
struct CommitRequest {
  SlotSnapshot snapshot;  // its slots are held and have been written; the committer takes them over
  CommitFacts facts;
};

struct CommitReport {
  CommitEntry entry;
  double seconds = 0;        // from submit until durable
  double flush_seconds = 0;  // of these, waiting for flushes
};

struct CommitterOptions {
  std::int64_t retained_commits = 1;
  // For crash tests; called on the commit thread. What it throws ends the committer as a failing disk would.
  std::function<void(CommitPoint point, int part)> on_point = {};
  // After each commit, on the commit thread.
  std::function<void(const CommitReport&)> on_durable = {};
};

// A commit whose slots are not reused, whatever is retained later, until the end of its scope. The store outlives it.
class CommitLease {
 public:
  CommitLease(SlotStore& slots, RetainedCommit commit);
  ~CommitLease();
  CommitLease(const CommitLease&) = delete;
  CommitLease& operator=(const CommitLease&) = delete;
  const CommitEntry& entry() const { return commit_.entry; }

 private:
  SlotStore& slots_;
  RetainedCommit commit_;
};

// One commit at a time, on a thread of its own that sleeps when it has nothing to do; one more may stand behind it. All
// calls may come from any thread. A flush or write that fails ends it: the last durable commit stands, later calls
// throw that failure, and the store stops handing out slots (SlotStore::stop).
class Committer {
 public:
  // `state`, `layout` and `slots` outlive it. `opened` is what read_catalogue found, or empty for new files.
  Committer(const State& state, const Layout& layout, SlotStore& slots, const OpenedCatalogue& opened,
            const CommitterOptions& options);
  ~Committer();  // waits for what is pending; its failure is lost, so call wait() first
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  // Begins to make the commit durable, after the one before, and returns; waits while `most_pending` are not durable.
  void submit(CommitRequest request);
  // Commits that are not durable yet.
  int pending() const;
  static constexpr int most_pending = 2;
  // Returns when no commit is pending. Throws the failure of one.
  void wait();
  // Throws the failure, if there was one; never waits.
  void check() const;

  // The retained commits, all durable, the newest last.
  std::vector<CommitEntry> commits() const;
  // Keeps a retained commit readable. Writers may have to wait for its end where the store has no slots to spare
  // (commit_slots_for counts `leases`). Null when it is not retained.
  std::unique_ptr<CommitLease> lease(std::uint64_t generation);
  // Drops all retained commits but the newest `keep`, at least 1, durably; waits for what is under way.
  void prune(std::int64_t keep);
  // Drops the retained commits that are newer than this one, durably: the run goes on from it instead.
  void forget_after(std::uint64_t generation);

 private:
  struct Job {
    std::optional<CommitRequest> commit;
    std::vector<RetainedCommit> retained;  // without a commit: what is to be retained from now on
    SteadyClock::time_point submitted;
  };

  void start(Job job);
  void run();
  void carry_out(Job& job);
  RetainedCommit write_commit(CommitRequest& request, std::uint64_t generation);
  void write_superblocks(const std::vector<RetainedCommit>& commits, std::uint64_t generation);
  void flush();
  void point(CommitPoint where, int part = 0) const;

  const State& state_;
  const Layout& layout_;
  SlotStore& slots_;
  CommitterOptions options_;
  std::uint64_t generation_;  // the last one used; of the commit thread
  int place_;                 // of the newest superblocks; of the commit thread
  double flush_seconds_ = 0;  // of the commit under way; of the commit thread

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RetainedCommit> retained_;
  std::deque<Job> jobs_;  // the first is under way, and stays until it is done
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace spillway
