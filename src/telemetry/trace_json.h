// The pieces of a trace, written as JSON.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "telemetry/events.h"

namespace spillway {

enum class TraceTrack : std::uint8_t { step = 1, phase, compute, read, write, commit, up, down };
inline constexpr std::size_t trace_track_count = 8;

struct TraceSlice {
  TraceTrack track = TraceTrack::compute;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::string name = {};
  std::string category = {};
  std::string arguments = {};  // members of a JSON object
};

struct TraceInstant {
  TraceTrack track = TraceTrack::compute;
  std::int64_t time_ns = 0;
  std::string name = {};
};

// From a slice of `from` that encloses from_ns to one of the compute track that begins at to_ns.
struct TraceFlow {
  TraceTrack from = TraceTrack::read;
  std::int64_t from_ns = 0;
  std::int64_t to_ns = 0;
};

std::string trace_text(std::string_view text);  // with its quotes

class TraceJson {
 public:
  // Times are written from `zero_ns` on. The tracks up to `last` are named.
  TraceJson(const std::function<void(std::string_view text)>& out, std::int64_t zero_ns, std::string_view name,
            TraceTrack last);

  void slice(const TraceSlice& slice);
  void instant(const TraceInstant& instant);
  void flow(const TraceFlow& flow);
  void memory(std::int64_t time_ns, EventMemory memory, const std::array<std::int64_t, memory_tag_count>& bytes);
  void counter(std::int64_t time_ns, std::string_view name, std::int64_t value);
  // A move's bytes, spread over its time, for its track's bandwidth by hundredths of a second. The moves of a track
  // come in the order of time.
  void move(TraceTrack track, std::int64_t begin_ns, std::int64_t end_ns, std::int64_t bytes);
  void end();

 private:
  // The hundredth of a second that a track's latest move reaches into, and where the next one is written.
  struct Bandwidth {
    std::int64_t bin = -1;
    double bytes = 0;
    std::int64_t next = 0;
  };

  void put(const std::string& event);
  void end_bin(TraceTrack track);
  void put_bandwidth(TraceTrack track, std::int64_t bin, double bytes);
  std::string time_of(std::int64_t time_ns) const;

  const std::function<void(std::string_view text)>& out_;
  std::int64_t zero_ns_;
  std::int64_t flows_ = 0;
  std::array<Bandwidth, trace_track_count + 1> bandwidths_;  // by track
  bool first_ = true;
};

}  // namespace spillway
