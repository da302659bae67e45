#include "report/report_data.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>

#include "base/error.h"

namespace spillway {
namespace {

std::string state_of_run(const RunFiles& files) {
  if (!files.flight) return "unknown";
  if (files.flight->end == FlightEnd::finished) return "finished";
  if (files.flight->end == FlightEnd::stopped) return "stopped";
  if (files.flight->end == FlightEnd::failed) return "failed";
  return files.flight->process_alive ? "running" : "killed";
}

void add_timeline(ReportedRun& report) {
  RunFiles& files = report.files;
  if (files.flight) report.timeline = timeline_of(*files.flight);
  if (files.step_record && (!report.timeline || !report.timeline->whole)) {
    std::optional<StepTimeline> earlier = timeline_of(*files.step_record);
    if (earlier && (earlier->whole || !report.timeline)) report.timeline = std::move(earlier);
  }
  if (!report.timeline) {
    if (files.flight && !files.flight->catalog.plans.empty())
      files.notes.push_back(fmt::format("{}: holds no training step any more, so there is no timeline of one",
                                        (files.folder / flight_file_name).string()));
    return;
  }
  report.phases = phase_table(*report.timeline);
  report.step_sentences = sentences_of(*report.timeline, report.phases);
}

void add_bound_sentences(ReportedRun& report) {
  const RunTotals& t = report.totals;
  if (t.median_step_seconds <= 0) return;
  const double bound = t.lower_bound_seconds.value_or(0);
  if (bound > t.median_step_seconds) {
    report.bound_sentences.push_back(fmt::format(
        "A step takes {:.3f} s (median), less than its bound of {:.3f} s: what it is made of was faster than the rates "
        "that were known when the run began",
        t.median_step_seconds, bound));
  } else if (bound > 0) {
    report.bound_sentences.push_back(
        fmt::format("A step takes {:.3f} s (median), and none that moves these bytes takes less than {:.3f} s: the run "
                    "reaches {:.0f}% of that bound",
                    t.median_step_seconds, bound, 100 * bound / t.median_step_seconds));
  }
  if (t.predicted_seconds && *t.predicted_seconds > 0)
    report.bound_sentences.push_back(fmt::format("It was predicted to take {:.3f} s, so it took {:.0f}% of that",
                                                 *t.predicted_seconds,
                                                 100 * t.median_step_seconds / *t.predicted_seconds));
  if (!t.predicted_seconds && t.steps > 0)
    report.bound_sentences.emplace_back(
        "The rates of the machine were assumed, not measured, when the run began, so its steps are held against no "
        "prediction: `spillway probe` measures them");
}

}  // namespace

ReportedRun report_of(RunFiles files) {
  ReportedRun report;
  report.files = std::move(files);
  report.totals = totals_of(report.files.steps);
  report.slow = slow_steps(report.files.steps);
  report.state = state_of_run(report.files);
  if (report.files.flight) report.story = story_of(*report.files.flight);
  add_timeline(report);
  add_bound_sentences(report);
  return report;
}

}  // namespace spillway
