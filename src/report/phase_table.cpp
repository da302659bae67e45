#include "report/phase_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>

namespace spillway {
namespace {

constexpr double hardly = 0.02;  // of a step: waiting that is not worth a sentence

struct Span {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Where moves of any of these lanes are under way, without overlaps.
std::vector<Span> busy(const std::vector<TimelineMove>& moves, std::initializer_list<EventLane> lanes) {
  std::vector<Span> spans;
  for (const TimelineMove& move : moves) {  // by begin
    if (std::find(lanes.begin(), lanes.end(), move.lane) == lanes.end()) continue;
    if (!spans.empty() && move.begin_ns <= spans.back().end_ns) {
      spans.back().end_ns = std::max(spans.back().end_ns, move.end_ns);
    } else {
      spans.push_back({move.begin_ns, move.end_ns});
    }
  }
  return spans;
}

// Calls with every overlap of a band and a span, both in order and each without overlaps of its own.
template <typename Call>
void each_overlap(const std::vector<TimelineBand>& bands, const std::vector<Span>& spans, Call&& call) {
  std::size_t s = 0;
  for (const TimelineBand& band : bands) {
    while (s < spans.size() && spans[s].end_ns <= band.begin_ns) ++s;
    for (std::size_t i = s; i < spans.size() && spans[i].begin_ns < band.end_ns; ++i) {
      const std::int64_t from = std::max(band.begin_ns, spans[i].begin_ns);
      const std::int64_t to = std::min(band.end_ns, spans[i].end_ns);
      if (to > from) call(static_cast<std::size_t>(band.phase), to - from, i);
    }
  }
}

using Rows = std::array<PhaseUse, step_phase_count>;

void add_busy(const StepTimeline& t, Rows& rows) {
  const auto add = [&](std::initializer_list<EventLane> lanes, double PhaseUse::*to) {
    each_overlap(t.bands, busy(t.moves, lanes),
                 [&](std::size_t p, std::int64_t ns, std::size_t) { rows[p].*to += seconds(ns); });
  };
  add({EventLane::read, EventLane::write}, &PhaseUse::disk_busy_seconds);
  add({EventLane::read}, &PhaseUse::read_busy_seconds);
  add({EventLane::write}, &PhaseUse::write_busy_seconds);
  add({EventLane::up, EventLane::down}, &PhaseUse::link_busy_seconds);
}

void add_bytes(const StepTimeline& t, EventLane lane, double PhaseUse::*to, Rows& rows) {
  std::vector<Span> spans;
  std::vector<double> bytes;
  for (const TimelineMove& move : t.moves) {
    if (move.lane != lane) continue;
    spans.push_back({move.begin_ns, std::max(move.end_ns, move.begin_ns + 1)});
    bytes.push_back(static_cast<double>(move.bytes));
  }
  each_overlap(t.bands, spans, [&](std::size_t p, std::int64_t ns, std::size_t i) {
    const double part = bytes[i] * static_cast<double>(ns) / static_cast<double>(spans[i].end_ns - spans[i].begin_ns);
    rows[p].*to += part;
  });
}

std::string phase_name(StepPhase phase) { return phase == StepPhase::other ? "the host" : std::string(name_of(phase)); }

std::string capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string duration(double s) {
  return s >= 1 ? fmt::format("{:.2f} s", s)
                : (s >= 1e-3 ? fmt::format("{:.1f} ms", s * 1e3) : fmt::format("{:.2f} ms", s * 1e3));
}

std::string share(double part, double whole) { return fmt::format("{:.0f}%", whole > 0 ? 100 * part / whole : 0); }

// Phases that count: they take some of the step, and leave the disk idle for most of their time.
std::vector<PhaseUse> idle_phases(const std::vector<PhaseUse>& phases, double all) {
  std::vector<PhaseUse> idle;
  for (const PhaseUse& row : phases) {
    const bool counts = row.phase != StepPhase::other && row.seconds > hardly * all;
    if (counts && row.disk_idle_seconds() > row.seconds / 2) idle.push_back(row);
  }
  return idle;
}

// "forward, head and backward"
template <typename Text>
std::string listed(const std::vector<PhaseUse>& phases, Text&& text_of) {
  std::string text;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (i > 0) text += i + 1 == phases.size() ? " and " : ", ";
    text += text_of(phases[i]);
  }
  return text;
}

std::string idle_sentence(const std::vector<PhaseUse>& phases, double all) {
  const std::vector<PhaseUse> idle = idle_phases(phases, all);
  const double busy = std::accumulate(phases.begin(), phases.end(), 0.0,
                                      [](double sum, const PhaseUse& row) { return sum + row.disk_busy_seconds; });
  if (idle.empty())
    return fmt::format("No phase leaves the disk idle for most of its time; it is busy for {} of the step",
                       share(busy, all));
  const std::string shares =
      listed(idle, [](const PhaseUse& row) { return share(row.disk_idle_seconds(), row.seconds); });
  return fmt::format("{} {} the disk idle, for {} of {} time; over the whole step it is busy for {}",
                     capital(listed(idle, [](const PhaseUse& row) { return phase_name(row.phase); })),
                     idle.size() == 1 ? "leaves" : "leave", shares, idle.size() == 1 ? "its" : "their",
                     share(busy, all));
}

std::string wait_sentence(const StepTimeline& timeline, const std::vector<PhaseUse>& phases, double all) {
  const auto waits = std::max_element(phases.begin(), phases.end(), [](const PhaseUse& a, const PhaseUse& b) {
    return a.waiting_seconds < b.waiting_seconds;
  });
  const double waiting = std::accumulate(phases.begin(), phases.end(), 0.0,
                                         [](double sum, const PhaseUse& row) { return sum + row.waiting_seconds; });
  const std::string_view what = timeline.device_bytes > 0 ? "disk or link" : "the disk";
  if (waiting == 0) return fmt::format("No phase waits for {}", what);
  if (waiting < hardly * all)
    return fmt::format("Hardly any phase waits for {}: {} of the step", what, share(waiting, all));
  const auto cause = std::max_element(waits->wait_seconds.begin(), waits->wait_seconds.end());
  return fmt::format("{} waits for {}, for {} of its {} ({} of its time), mostly for {}",
                     capital(phase_name(waits->phase)), what, duration(waits->waiting_seconds),
                     duration(waits->seconds), share(waits->waiting_seconds, waits->seconds),
                     words_of(static_cast<WaitCause>(cause - waits->wait_seconds.begin())));
}

}  // namespace

std::string words_of(WaitCause cause) {
  switch (cause) {
    case WaitCause::read_weights: return "weights to be read";
    case WaitCause::read_optimizer: return "optimizer state to be read";
    case WaitCause::read_gradients: return "gradients to be read";
    case WaitCause::read_activations: return "activations to be read";
    case WaitCause::write_weights: return "weights to be written";
    case WaitCause::write_optimizer: return "optimizer state to be written";
    case WaitCause::write_gradients: return "gradients to be written";
    case WaitCause::write_activations: return "activations to be written";
    case WaitCause::up_weights: return "weights to come up to the device";
    case WaitCause::up_optimizer: return "optimizer state to come up to the device";
    case WaitCause::up_gradients: return "gradients to come up to the device";
    case WaitCause::up_activations: return "activations to come up to the device";
    case WaitCause::down_weights: return "weights to go down from the device";
    case WaitCause::down_optimizer: return "optimizer state to go down from the device";
    case WaitCause::down_gradients: return "gradients to go down from the device";
    case WaitCause::down_activations: return "activations to go down from the device";
    case WaitCause::update: return "updates on the host";
  }
  return "the disk";
}

std::vector<PhaseUse> phase_table(const StepTimeline& timeline) {
  Rows rows{};
  for (std::size_t p = 0; p < rows.size(); ++p) rows[p].phase = static_cast<StepPhase>(p);
  for (const TimelineBand& band : timeline.bands)
    rows[static_cast<std::size_t>(band.phase)].seconds += seconds(band.end_ns - band.begin_ns);
  for (const TimelineWait& wait : timeline.waits) {
    PhaseUse& row = rows[static_cast<std::size_t>(wait.phase)];
    row.waiting_seconds += seconds(wait.end_ns - wait.begin_ns);
    row.wait_seconds[static_cast<std::size_t>(wait.cause)] += seconds(wait.end_ns - wait.begin_ns);
  }
  add_busy(timeline, rows);
  add_bytes(timeline, EventLane::read, &PhaseUse::read_bytes, rows);
  add_bytes(timeline, EventLane::write, &PhaseUse::write_bytes, rows);
  add_bytes(timeline, EventLane::up, &PhaseUse::up_bytes, rows);
  add_bytes(timeline, EventLane::down, &PhaseUse::down_bytes, rows);
  std::vector<PhaseUse> table(rows.begin(), rows.end());
  std::erase_if(table, [](const PhaseUse& row) { return row.seconds == 0; });
  return table;
}

std::vector<std::string> sentences_of(const StepTimeline& timeline, const std::vector<PhaseUse>& phases) {
  const double all = seconds(timeline.ns);
  const bool of_disk = std::any_of(timeline.moves.begin(), timeline.moves.end(),
                                   [](const TimelineMove& move) { return !is_of_link(move.lane); });
  if (timeline.moves.empty()) return {"The disk was not used in this step: everything stayed in memory"};
  if (phases.empty()) return {};
  const std::string disk = of_disk ? idle_sentence(phases, all) : "The disk was not used in this step";
  return {disk, wait_sentence(timeline, phases, all)};
}

}  // namespace spillway
