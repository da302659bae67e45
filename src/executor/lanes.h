// What the compute thread and the disk thread share, and the random delays that tests put between them. Counts go on
// from plan to plan.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "executor/executor.h"

namespace spillway {

// A small generator for the delays of tests; each thread has its own.
class Delays {
 public:
  explicit Delays(std::uint64_t seed) : state_(seed) {}
  void maybe_sleep() {
    if (state_ == 0) return;
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    if (state_ % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(state_ / 8 % 300));
  }

 private:
  std::uint64_t state_;
};

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

// Those that have a thread each.
constexpr std::array worker_lanes{LaneId::up, LaneId::down, LaneId::update};

// A move that was started and does not count as done yet.
struct Executor::Move {
  std::shared_ptr<const Following> of;
  InstrId instr = InstrId::none;
  Residence what;
  std::int64_t number = 0;      // in its lane, of all plans
  int disk = -1;                // the first it is on; -1: it is nowhere yet
  std::int32_t parts_left = 0;  // requests under way
  bool complete = false;
};

// An op that was started and is not known to be done.
struct Executor::Started {
  InstrId instr = InstrId::none;
  OpId op = OpId::none;
  std::int64_t mark = 0;
};

struct Executor::Lanes {
  std::array<std::atomic<std::int64_t>, lane_count> done{};  // instructions of each lane that are done, in order
  std::atomic<std::uint32_t> events{0};                      // grows with every change the compute thread may wait for
  // By lane, the count at which the disk thread wants a wake; it sees the ends of its own lanes.
  std::array<std::atomic<std::int64_t>, lane_count> wake_at{never, never, never, never, never, never};
  std::atomic<bool> failed{false};

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<const Following>> submitted;  // for the disk thread to take
  bool idle = true;  // the disk thread has nothing to start and nothing under way, and touches no engine
  // Of a direction of the link, or of updates on the host: plans for its thread to take. It has nothing to do when it
  // says so.
  struct Worker {
    std::deque<std::shared_ptr<const Following>> submitted;
    bool idle = true;
    std::thread thread;
  };
  std::array<Worker, worker_lanes.size()> workers;
  Worker& worker(LaneId lane) { return workers[static_cast<std::size_t>(lane) - static_cast<std::size_t>(LaneId::up)]; }
  std::exception_ptr failure;  // the first one; it stays
  bool stop = false;

  // Of the disk thread alone. A lane's instructions that are not started are those of `plans` from `next` on.
  struct Moves {
    std::deque<std::shared_ptr<const Following>> plans;
    std::size_t next = 0;      // in the first of `plans`
    std::deque<Move> started;  // in order; the first is number `done` of the lane
    std::int32_t under_way = 0;
  };
  std::array<Moves, lane_count> moves;
  std::thread thread;

  void signal() {
    events.fetch_add(1);
    events.notify_all();
  }
};

}  // namespace spillway
