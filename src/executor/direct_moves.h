// Moves between files and an accelerator's memory, by its own path to the disk: a few threads that wait for it, since
// its calls return when they are done, and the disk thread is to go on meanwhile.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "executor/accelerator.h"
#include "store/io.h"

namespace spillway {

class DirectMoves {
 public:
  struct Ended {
    IoCompletion completion;
    std::exception_ptr failure = {};  // of the device itself; the completion has failed then
  };

  // `ended` is called, on any thread, when there is something to take. Both outlive this.
  DirectMoves(Accelerator& device, std::function<void()> ended);
  ~DirectMoves();  // waits for what is under way; what has not started is dropped
  DirectMoves(const DirectMoves&) = delete;
  DirectMoves& operator=(const DirectMoves&) = delete;

  // As IoEngine::submit, of an open descriptor instead of an engine's file, and memory of the device. Short transfers
  // are continued; a read that fails is tried once more, a write is not (see IoParts::advance).
  void submit(const IoRequest& request);
  // Appends what has ended since.
  void take(std::vector<Ended>& done);

 private:
  void serve();
  void stop();
  Ended move(const IoRequest& request);

  Accelerator& device_;
  std::function<void()> ended_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<IoRequest> waiting_;
  std::vector<Ended> done_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace spillway
