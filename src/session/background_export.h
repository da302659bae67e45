// An export of a commit on a thread of its own, while training goes on. The commit's slots stay as they are, so nothing
// is copied first. The thread has the lowest priority and rests between blocks.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <thread>

#include "checkpoint/committer.h"
#include "session/portable.h"
#include "session/run_store.h"

namespace spillway {

class BackgroundExport {
 public:
  // Begins at once. What `from` names, and `slots`, outlive it. `run`: what the state file is to say; with `only_model`
  // there is none.
  BackgroundExport(std::shared_ptr<SlotStore> slots, std::unique_ptr<CommitLease> lease, const ExportFrom& from,
                   const RunState& run, bool only_model, const std::filesystem::path& to);
  ~BackgroundExport();  // ends it, unfinished; what it has written is removed
  BackgroundExport(const BackgroundExport&) = delete;
  BackgroundExport& operator=(const BackgroundExport&) = delete;

  bool done() const { return done_.load(); }
  // Waits, and writes as fast as it can from now on. Throws what the export threw.
  void wait();
  std::int64_t step() const { return run_.step; }

  // Of the time in which it exports, it works this share and rests otherwise.
  static constexpr double work_share = 0.25;

 private:
  void work();
  void rest(std::int64_t written_bytes);

  std::shared_ptr<SlotStore> slots_;
  std::unique_ptr<CommitLease> lease_;
  ExportFrom from_;
  RunState run_;
  bool only_model_;
  std::filesystem::path to_;
  std::chrono::steady_clock::time_point resumed_;  // of the export's thread
  std::atomic<int> thread_number_{0};              // of the system
  std::atomic<bool> hurry_{false};
  std::atomic<bool> give_up_{false};
  std::atomic<bool> done_{false};
  std::exception_ptr failure_;  // read when done
  std::thread thread_;
};

}  // namespace spillway
