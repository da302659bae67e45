#include "telemetry/event_ring.h"

#include <algorithm>
#include <bit>

namespace spillway {
namespace {

constexpr std::size_t words_per_event = std::tuple_size_v<EventWords>;

}  // namespace

void EventRing::write(const Event& event) {
  const auto words = std::bit_cast<EventWords>(event);
  Word* to = words_ + at_ * words_per_event;
  for (const std::uint64_t word : words) (to++)->store(word, std::memory_order_relaxed);
  head_->written.store(head_->written.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  if (++at_ == head_->capacity) at_ = 0;
}

EventRing::Reading EventRing::read(std::uint64_t from, std::vector<Event>& events, std::uint64_t most) const {
  const std::uint64_t capacity = head_->capacity;
  const std::uint64_t all = written();
  const std::uint64_t oldest = all > capacity ? all - capacity : 0;
  const std::uint64_t begin = std::max(from, oldest);
  const std::uint64_t end = begin + std::min(most, all - std::min(begin, all));
  const auto first = static_cast<std::ptrdiff_t>(events.size());
  for (std::uint64_t number = begin; number < end; ++number) {
    const Word* word = words_ + number % capacity * words_per_event;
    EventWords words{};
    for (std::uint64_t& to : words) to = (word++)->load(std::memory_order_acquire);
    events.push_back(std::bit_cast<Event>(words));
  }
  const std::uint64_t reach = written() + margin;
  const std::uint64_t whole = reach > capacity ? reach - capacity : 0;
  const std::uint64_t spoiled = whole > begin ? std::min(whole, end) - begin : 0;
  events.erase(events.begin() + first, events.begin() + first + static_cast<std::ptrdiff_t>(spoiled));
  return {end, begin + spoiled - std::min(from, begin + spoiled)};
}

}  // namespace spillway
