// A ring of the latest events of one thread, in memory that another process may map.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "telemetry/events.h"

namespace spillway {

// One writer, any readers, no locks. What a reader gets is whole: it looks once more at how far the writer is and
// leaves out what may have been overwritten meanwhile. Since the words of an event are stored before it is counted, a
// writer that dies leaves every counted event whole.
class EventRing {
 public:
  struct Head {
    std::atomic<std::uint64_t> written{0};  // events ever
    std::uint64_t capacity = 0;
    std::array<char, 16> name{};
    std::array<std::byte, 32> reserved{};
  };
  static_assert(sizeof(Head) == 64);
  using Word = std::atomic<std::uint64_t>;
  static_assert(sizeof(Word) == 8 && Word::is_always_lock_free);

  static constexpr std::int64_t bytes_for(std::int64_t capacity) {
    return capacity * static_cast<std::int64_t>(sizeof(Event));
  }

  EventRing() = default;
  // Over memory that is zero, or holds a ring already; `words` has room for head->capacity events.
  EventRing(Head* head, Word* words) : head_(head), words_(words) {}

  void write(const Event& event);

  struct Reading {
    std::uint64_t next = 0;  // where to go on
    std::uint64_t lost = 0;  // events that were overwritten before they could be read
  };
  // Appends the events from number `from` on, oldest first, `most` at most.
  Reading read(std::uint64_t from, std::vector<Event>& events,
               std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) const;

  std::uint64_t written() const { return head_->written.load(std::memory_order_acquire); }
  std::uint64_t capacity() const { return head_->capacity; }

 private:
  // The writer may be some way into what it has not counted yet, also when it died there.
  static constexpr std::uint64_t margin = 16;

  Head* head_ = nullptr;
  Word* words_ = nullptr;
  std::uint64_t at_ = 0;  // the writer's place: written modulo capacity
};

}  // namespace spillway
