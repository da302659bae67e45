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

// A bundle has pages from the event that attaches them, or from the run at whose entry it is, until the last
// instruction that touches its stay is done; or on into the next run, when it stays at the exit. Takes events by time.
class MemoryByTag {
 public:
  explicit MemoryByTag(const Catalog& catalog) : catalog_(catalog), live_(catalog.bundles.size(), 0) {}

  void take(const Event& event);

  // Called at every change, with the bundle and the bytes that its pages grew (or shrank) by.
  void on_change(std::function<void(std::int32_t bundle, std::int64_t bytes)> call) { on_change_ = std::move(call); }

  // By MemoryTag; with `unused` they add up to the arena. (Events of two threads that raced may for an instant claim
  // more; then nothing is unused and they add up to more.)
  std::array<std::int64_t, memory_tag_count> bytes() const;
  std::int64_t used_bytes() const { return used_; }
  std::int64_t runs_under_way() const { return std::ssize(runs_); }

 private:
  // A run of a plan some of whose instructions are not done, of those that are told of.
  struct Run {
    std::uint8_t plan = 0;
    std::vector<std::int32_t> touches;  // by stay: instructions that touch it and are not done
    std::int64_t instrs_left = 0;
  };

  void begin_run(const Event& event);
  void end_instr(const Event& event);
  void set(std::int32_t bundle, std::int64_t bytes);

  const Catalog& catalog_;
  std::vector<std::int64_t> live_;  // by bundle: bytes of its pages, 0 when it has none
  std::vector<bool> held_;          // by bundle: at the exit of the latest run
  std::map<std::uint16_t, Run> runs_;
  std::array<std::int64_t, memory_tag_count> by_tag_{};
  std::int64_t used_ = 0;
  std::function<void(std::int32_t, std::int64_t)> on_change_;
};

}  // namespace spillway
