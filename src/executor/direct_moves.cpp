#include "executor/direct_moves.h"

#include <cerrno>
#include <utility>

namespace spillway {
namespace {

constexpr int direct_threads = 4;  // so many requests are under way

}  // namespace

DirectMoves::DirectMoves(Accelerator& device, std::function<void()> ended) : device_(device), ended_(std::move(ended)) {
  try {
    for (int i = 0; i < direct_threads; ++i) threads_.emplace_back([this] { serve(); });
  } catch (...) {  // the system starts no more
    stop();
    throw;
  }
}

DirectMoves::~DirectMoves() { stop(); }

void DirectMoves::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void DirectMoves::submit(const IoRequest& request) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(request);
  }
  changed_.notify_one();
}

void DirectMoves::take(std::vector<Ended>& done) {
  const std::lock_guard lock(mutex_);
  for (Ended& ended : done_) done.push_back(std::move(ended));
  done_.clear();
}

void DirectMoves::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    const IoRequest request = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    Ended ended = move(request);
    lock.lock();
    done_.push_back(std::move(ended));
    ended_();
  }
}

DirectMoves::Ended DirectMoves::move(const IoRequest& request) {
  Ended ended{{request.tag, 0, 0, request.bytes}};
  std::int64_t& moved = ended.completion.bytes;
  const bool reads = request.kind == IoRequest::Kind::read;
  bool may_fail = reads;
  try {
    while (moved < request.bytes) {
      const std::int64_t offset = request.offset_bytes + moved;
      std::byte* const data = request.data + moved;
      const std::int64_t left = request.bytes - moved;
      const std::int64_t result = reads ? device_.read_file(request.file, offset, data, left)
                                        : device_.write_file(request.file, offset, data, left);
      if (result == 0) break;  // the end of the file
      if (result > 0) {
        moved += result;
      } else if (!std::exchange(may_fail, false)) {
        ended.completion.error = static_cast<int>(-result);
        break;
      }
    }
  } catch (const std::exception&) {
    ended.completion.error = EIO;
    ended.failure = std::current_exception();
  }
  return ended;
}

}  // namespace spillway
