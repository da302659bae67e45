// What lies on the pages, followed event by event.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "telemetry/catalog.h"
#include "telemetry/record.h"

namespace spillway {

// A bundle has pages in a memory from the event that attaches them, or from the run at whose entry it is there, until
// the last instruction that touches its stay is done; or on into the next run, when it stays at the exit. Takes events
// by time.
class MemoryByTag {
 public:
  using ByTag = std::array<std::int64_t, memory_tag_count>;
  using Change = std::function<void(EventMemory memory, std::int32_t bundle, std::int64_t bytes)>;

  explicit MemoryByTag(const Catalog& catalog)
      : catalog_(catalog), live_(event_memory_count * catalog.bundles.size(), 0) {}

  void take(const Event& event);

  // Called at every change, with the bundle and the bytes that its pages in a memory grew (or shrank) by.
  void on_change(Change call) { on_change_ = std::move(call); }

  // By MemoryTag; with `unused` they add up to the pages of the memory. (Events of two threads that raced may for an
  // instant claim more; then nothing is unused and they add up to more.)
  ByTag bytes(EventMemory memory = EventMemory::host) const;
  std::int64_t used_bytes(EventMemory memory = EventMemory::host) const { return used_[at(memory)]; }
  // That instant aside.
  bool is_sound(EventMemory memory) const { return used_bytes(memory) <= catalog_.bytes_of(memory); }
  std::int64_t runs_under_way() const { return std::ssize(runs_); }

 private:
  // A run of a plan some of whose instructions are not done, of those that are told of.
  struct Run {
    std::uint8_t plan = 0;
    std::vector<std::int32_t> touches;  // by stay: instructions that touch it and are not done
    std::int64_t instrs_left = 0;
  };

  static std::size_t at(EventMemory memory) { return static_cast<std::size_t>(memory); }
  // A bundle's place in a memory; -1 where there is none of that number, as in a damaged file.
  std::ptrdiff_t place_of(EventMemory memory, std::int32_t bundle) const;
  void begin_run(const Event& event);
  void begin_stay(const Event& event);
  void end_instr(const Event& event);
  void set(EventMemory memory, std::int32_t bundle, std::int64_t bytes);

  const Catalog& catalog_;
  std::vector<std::int64_t> live_;  // by memory and bundle: bytes of its pages, 0 when it has none
  std::vector<bool> held_;          // likewise: at the exit of the latest run
  std::map<std::uint16_t, Run> runs_;
  std::array<ByTag, event_memory_count> by_tag_{};
  std::array<std::int64_t, event_memory_count> used_{};
  Change on_change_;
};

}  // namespace spillway
