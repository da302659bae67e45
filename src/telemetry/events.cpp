#include "telemetry/events.h"

#include "base/error.h"

namespace spillway {
namespace {

template <typename Enum, std::size_t count>
std::string_view name_in(const std::array<std::string_view, count>& names, Enum value) {
  const auto at = static_cast<std::size_t>(value);
  return at < count ? names[at] : "unknown";
}

constexpr std::array<std::string_view, event_source_count> sources{"compute",    "disk",    "commit",
                                                                   "background", "copy up", "copy down"};
constexpr std::array<std::string_view, event_lane_count> lanes{"compute", "disk read", "disk write", "commit",
                                                               "host",    "copy up",   "copy down",  "host update"};
constexpr std::array<std::string_view, event_kind_count> kinds{
    "none",          "phase_begin", "phase_end", "step_begin", "step_end", "plan_begin",
    "plan_end",      "op_begin",    "op_end",    "wait_begin", "wait_end", "move_submit",
    "move_complete", "stay_begin",  "commit",    "note",       "counter"};
constexpr std::array<std::string_view, run_phase_count> phases{"load", "train", "evaluate", "save"};
constexpr std::array<std::string_view, commit_stage_count> stages{"snapshot", "flushed", "manifest", "durable",
                                                                  "abandoned"};
constexpr std::array<std::string_view, note_kind_count> notes{"slow_step", "clipped", "reverted", "failure"};
constexpr std::array<std::string_view, counter_kind_count> counters{"rss_bytes", "system_read_bytes",
                                                                    "system_write_bytes"};
constexpr std::array<std::string_view, memory_tag_count> tags{"weights", "optimizer", "gradients", "activations",
                                                              "unused"};

}  // namespace

std::string_view name_of(EventSource source) { return name_in(sources, source); }
std::string_view name_of(EventLane lane) { return name_in(lanes, lane); }
std::string_view name_of(EventKind kind) { return name_in(kinds, kind); }
std::string_view name_of(RunPhase phase) { return name_in(phases, phase); }
std::string_view name_of(CommitStage stage) { return name_in(stages, stage); }
std::string_view name_of(NoteKind kind) { return name_in(notes, kind); }
std::string_view name_of(CounterKind kind) { return name_in(counters, kind); }
std::string_view name_of(MemoryTag tag) { return name_in(tags, tag); }

}  // namespace spillway
