// A strict reader of the Trace Event Format, written from its description and not from our writer: every event has the
// keys of its kind; slices of a track are in order and nest; every flow has one start and one end, each inside a slice
// of its track, the end not before the start; names of tracks come before their slices.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace spillway {

class TraceChecker {
 public:
  struct Slice {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::string name;
    nlohmann::json args;
  };
  using Point = std::pair<std::int64_t, std::int64_t>;  // track, time

  explicit TraceChecker(const std::string& text) {
    const auto trace = nlohmann::json::parse(text);
    for (const auto& event : trace.at("traceEvents")) check(event);
    for (const auto& [id, points] : flows_) {
      if (points.size() != 2) fault("flow " + id + " has not one start and one end");
      for (const Point& point : points) {
        if (!enclosed(point)) fault("flow " + id + " is bound to no slice at " + std::to_string(point.second));
      }
      if (points.size() == 2 && points[0].second > points[1].second) fault("flow " + id + " goes back in time");
    }
  }

  std::vector<std::string> faults;
  std::map<std::string, std::vector<Slice>> tracks;             // by name
  std::map<std::string, std::vector<nlohmann::json>> counters;  // by name: args in order of time
  std::size_t flow_count() const { return flows_.size(); }

 private:
  void fault(const std::string& what) { faults.push_back(what); }

  std::int64_t ns_of(const nlohmann::json& event, const char* key) {
    if (!event.contains(key) || !event[key].is_number()) {
      fault(std::string(key) + " is missing in " + event.dump());
      return 0;
    }
    const double ns = event[key].get<double>() * 1000;
    if (ns < 0) fault(std::string(key) + " is negative in " + event.dump());
    return std::llround(ns);
  }

  void check(const nlohmann::json& event) {
    for (const char* key : {"ph", "pid", "name"}) {
      if (!event.contains(key)) return fault(std::string(key) + " is missing in " + event.dump());
    }
    const auto kind = event["ph"].get<std::string>();
    const std::int64_t tid = event.value("tid", std::int64_t{-1});
    if (kind == "M") {
      if (event["name"] == "thread_name") names_[tid] = event["args"]["name"].get<std::string>();
      return;
    }
    const std::int64_t at = ns_of(event, "ts");
    if (kind == "C") return count(event, at);
    if (!names_.contains(tid)) return fault("track " + std::to_string(tid) + " has no name");
    if (kind == "X") return add_slice(event, tid, at);
    if (kind == "s" || kind == "f") {
      if (kind == "f" && event.value("bp", "") != "e") fault("a flow's end is not bound to its slice");
      flows_[event.at("id").dump()].emplace_back(tid, at);
      return;
    }
    if (kind != "i") fault("kind " + kind + " is unknown");
  }

  void count(const nlohmann::json& event, std::int64_t at) {
    const auto name = event["name"].get<std::string>();
    if (at < counted_[name]) fault("counter " + name + " goes back in time");
    counted_[name] = at;
    for (const auto& [key, value] : event.at("args").items()) {
      if (!value.is_number()) fault("counter " + name + " has no number " + key);
    }
    counters[name].push_back(event["args"]);
  }

  void add_slice(const nlohmann::json& event, std::int64_t tid, std::int64_t at) {
    const Slice slice{at, at + ns_of(event, "dur"), event["name"].get<std::string>(),
                      event.value("args", nlohmann::json())};
    std::vector<std::int64_t>& open = open_[tid];
    std::vector<Slice>& track = tracks[names_[tid]];
    if (!track.empty() && at < track.back().begin_ns) fault("slice " + slice.name + " begins before the one before it");
    while (!open.empty() && open.back() <= at) open.pop_back();
    if (!open.empty() && slice.end_ns > open.back()) fault("slice " + slice.name + " overlaps without nesting");
    open.push_back(slice.end_ns);
    track.push_back(slice);
  }

  bool enclosed(const Point& point) {
    for (const Slice& slice : tracks[names_[point.first]]) {
      if (slice.begin_ns <= point.second && point.second <= slice.end_ns) return true;
    }
    return false;
  }

  std::map<std::int64_t, std::string> names_;
  std::map<std::int64_t, std::vector<std::int64_t>> open_;  // by track: ends of slices that may enclose the next
  std::map<std::string, std::int64_t> counted_;
  std::map<std::string, std::vector<Point>> flows_;
};

}  // namespace spillway
