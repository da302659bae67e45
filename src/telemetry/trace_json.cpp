#include "telemetry/trace_json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace spillway {
namespace {

constexpr std::int64_t bandwidth_bin_ns = 10'000'000;

std::string_view track_name(TraceTrack track) {
  constexpr std::array<std::string_view, trace_track_count> names{"step",       "phase",  "compute", "disk read",
                                                                  "disk write", "commit", "copy up", "copy down"};
  return names[static_cast<std::size_t>(track) - 1];
}

}  // namespace

std::string trace_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

TraceJson::TraceJson(const std::function<void(std::string_view text)>& out, std::int64_t zero_ns, std::string_view name,
                     TraceTrack last)
    : out_(out), zero_ns_(zero_ns) {
  out_("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
  put(fmt::format(R"({{"ph": "M", "pid": 1, "name": "process_name", "args": {{"name": {}}}}})", trace_text(name)));
  for (int t = 1; t <= static_cast<int>(last); ++t) {
    put(fmt::format(R"({{"ph": "M", "pid": 1, "tid": {}, "name": "thread_name", "args": {{"name": "{}"}}}})", t,
                    track_name(static_cast<TraceTrack>(t))));
    put(fmt::format(
        R"({{"ph": "M", "pid": 1, "tid": {0}, "name": "thread_sort_index", "args": {{"sort_index": {0}}}}})", t));
  }
}

void TraceJson::put(const std::string& event) {
  out_(first_ ? "" : ",\n");
  first_ = false;
  out_(event);
}

std::string TraceJson::time_of(std::int64_t time_ns) const {
  const std::int64_t ns = std::max<std::int64_t>(0, time_ns - zero_ns_);
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

void TraceJson::slice(const TraceSlice& s) {
  const std::int64_t ns = std::max<std::int64_t>(0, s.end_ns - std::max(s.begin_ns, zero_ns_));
  put(fmt::format(
      R"({{"ph": "X", "pid": 1, "tid": {}, "ts": {}, "dur": {}.{:03}, "name": {}, "cat": {}, "args": {{{}}}}})",
      static_cast<int>(s.track), time_of(s.begin_ns), ns / 1000, ns % 1000, trace_text(s.name), trace_text(s.category),
      s.arguments));
}

void TraceJson::instant(const TraceInstant& i) {
  put(fmt::format(R"({{"ph": "i", "pid": 1, "tid": {}, "ts": {}, "s": "t", "name": {}, "cat": "note"}})",
                  static_cast<int>(i.track), time_of(i.time_ns), trace_text(i.name)));
}

void TraceJson::flow(const TraceFlow& f) {
  ++flows_;
  put(fmt::format(R"({{"ph": "s", "pid": 1, "tid": {}, "ts": {}, "id": {}, "name": "waited for", "cat": "wait"}})",
                  static_cast<int>(f.from), time_of(f.from_ns), flows_));
  put(fmt::format(
      R"({{"ph": "f", "bp": "e", "pid": 1, "tid": {}, "ts": {}, "id": {}, "name": "waited for", "cat": "wait"}})",
      static_cast<int>(TraceTrack::compute), time_of(f.to_ns), flows_));
}

void TraceJson::memory(std::int64_t time_ns, EventMemory memory,
                       const std::array<std::int64_t, memory_tag_count>& bytes) {
  std::string arguments;
  for (std::size_t tag = 0; tag < memory_tag_count; ++tag) {
    arguments += fmt::format("{}\"{}\": {}", tag == 0 ? "" : ", ", name_of(static_cast<MemoryTag>(tag)), bytes[tag]);
  }
  put(fmt::format(R"({{"ph": "C", "pid": 1, "ts": {}, "name": "{}memory, bytes", "args": {{{}}}}})", time_of(time_ns),
                  memory == EventMemory::host ? "" : "device ", arguments));
}

void TraceJson::counter(std::int64_t time_ns, std::string_view name, std::int64_t value) {
  put(fmt::format(R"({{"ph": "C", "pid": 1, "ts": {}, "name": {}, "args": {{"value": {}}}}})", time_of(time_ns),
                  trace_text(name), value));
}

void TraceJson::move(TraceTrack track, std::int64_t begin_ns, std::int64_t end_ns, std::int64_t bytes) {
  Bandwidth& now = bandwidths_[static_cast<std::size_t>(track)];
  const std::int64_t begin = begin_ns - zero_ns_;
  const std::int64_t end = std::max(begin + 1, end_ns - zero_ns_);
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t bin = at / bandwidth_bin_ns;
    const std::int64_t to = std::min(end, (bin + 1) * bandwidth_bin_ns);
    if (bin != now.bin) end_bin(track);
    now.bin = bin;
    now.bytes += static_cast<double>(bytes) * static_cast<double>(to - at) / static_cast<double>(end - begin);
    at = to;
  }
}

// A bin without moves before this one is written as zero, once.
void TraceJson::end_bin(TraceTrack track) {
  Bandwidth& now = bandwidths_[static_cast<std::size_t>(track)];
  if (now.bin < 0) return;
  if (now.bin > now.next) put_bandwidth(track, now.next, 0);
  put_bandwidth(track, now.bin, now.bytes);
  now = {-1, 0, now.bin + 1};
}

void TraceJson::put_bandwidth(TraceTrack track, std::int64_t bin, double bytes) {
  put(fmt::format(R"({{"ph": "C", "pid": 1, "ts": {}, "name": "{}, MB/s", "args": {{"value": {:.1f}}}}})",
                  time_of(zero_ns_ + bin * bandwidth_bin_ns), track_name(track),
                  bytes * 1e3 / static_cast<double>(bandwidth_bin_ns)));
}

void TraceJson::end() {
  for (std::size_t t = 1; t <= trace_track_count; ++t) {
    const auto track = static_cast<TraceTrack>(t);
    end_bin(track);
    if (const std::int64_t next = bandwidths_[t].next; next > 0) put_bandwidth(track, next, 0);
  }
  out_("\n]}\n");
}

}  // namespace spillway
