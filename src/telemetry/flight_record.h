// The flight record: the rings of a run in a file of the output folder, mapped and shared, so that whatever ends the
// process (a crash, an abort, kill -9) the latest events are there to be read. Nothing is ever synchronised: the page
// cache outlives the process, and a power failure is not what this is for.
//
// The file: a header of 4 KiB, the heads of the rings, their events, then the Catalog as JSON (docs/formats.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "telemetry/catalog.h"
#include "telemetry/event_recorder.h"

namespace spillway {

inline constexpr std::string_view flight_file_name = "flight.bin";
// The record as it was when the latest evaluation began, whose events may push the steps out.
inline constexpr std::string_view steps_file_name = "steps.bin";

enum class FlightEnd : std::uint32_t { running, finished, failed, stopped };  // the last: when it was asked to

struct FlightHeader {
  std::array<char, 8> magic{};
  std::uint32_t version = 0;  // event_version
  std::uint32_t event_bytes = 0;
  std::int64_t process = 0;
  std::int64_t start_wall_ns = 0;  // since 1970, UTC
  std::int64_t start_ns = 0;       // the same instant on the events' clock
  std::int64_t rings_bytes = 0;    // heads and events, from the end of the header
  std::int64_t catalog_bytes = 0;  // after the rings; 0 until it is written
  std::atomic<FlightEnd> end{FlightEnd::running};
  std::uint32_t reserved = 0;
  // Kept here as well, since their events may have left the rings.
  std::atomic<std::int64_t> steps_done{0};
  std::atomic<std::int64_t> total_steps{0};
  std::atomic<std::int64_t> committed_step{-1};  // -1: none
  std::atomic<std::int64_t> committed_ns{0};     // when it became durable, on the events' clock
};

// The writer. Owns the mapping; its EventRecorder is used by the run.
class FlightFile {
 public:
  // Makes the file, or replaces the one that is there. Throws DeviceError.
  FlightFile(const std::filesystem::path& path, const RingCapacities& capacities);
  FlightFile(const FlightFile&) = delete;
  FlightFile& operator=(const FlightFile&) = delete;
  ~FlightFile();

  void describe(const Catalog& catalog);  // throws DeviceError
  EventRecorder& recorder() { return *recorder_; }
  void step_done(std::int64_t step, std::int64_t total_steps);
  void committed(std::int64_t step);
  // Copies the file, as it is now, beside it under steps_file_name. Takes no memory; what fails is of no consequence.
  void keep_steps() const;
  void ended(FlightEnd end) { header().end = end; }

  static constexpr std::int64_t header_bytes = 4096;

 private:
  FlightHeader& header() { return *reinterpret_cast<FlightHeader*>(memory_); }

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::byte* memory_ = nullptr;
  std::int64_t bytes_ = 0;
  std::unique_ptr<EventRecorder> recorder_;
};

// What a file holds; of a run that may still be going on.
struct FlightRecord {
  Catalog catalog;            // empty when the run ended before it was written
  std::vector<Event> events;  // of all sources, by time
  std::int64_t process = 0;
  std::int64_t start_wall_ns = 0;
  std::int64_t start_ns = 0;
  FlightEnd end = FlightEnd::running;
  bool process_alive = false;  // a process of that number exists on this machine
  std::int64_t steps_done = 0;
  std::int64_t total_steps = 0;
  std::int64_t committed_step = -1;
  std::int64_t committed_ns = 0;
};

// `given` is the file, or the folder of a run. Throws UserError when it is missing or not one of ours.
FlightRecord read_flight(const std::filesystem::path& given);

// The story in sentences, without full stops: what ended it, the step, the last op finished, the op and the moves in
// progress, what it waited for, the last commit.
std::vector<std::string> story_of(const FlightRecord& record);

// The same as numbers, for tests and for whoever words it differently. -1: none.
struct FlightState {
  std::int32_t step = 0;
  Event last_op;             // op_end; kind none when there was none
  Event current_op;          // op_begin without its end
  Event wait;                // wait_begin without its end
  std::vector<Event> moves;  // move_submit without move_complete, oldest first
  RunPhase phase = RunPhase::load;
  bool in_phase = false;
};
FlightState state_of(const std::vector<Event>& events);

}  // namespace spillway
