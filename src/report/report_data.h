// All that a page shows of its runs, as one JSON object: the only thing that the page and this program share.
// docs/formats.md has it.
#pragma once

#include <span>
#include <string>

#include "report/phase_table.h"
#include "report/run_curves.h"
#include "report/run_files.h"
#include "report/step_timeline.h"

namespace spillway {

constexpr int report_data_version = 2;

// A run as it is shown.
struct ReportedRun {
  RunFiles files;
  RunTotals totals;
  std::vector<SlowStep> slow;
  std::optional<StepTimeline> timeline;
  std::vector<PhaseUse> phases;              // of the timeline
  std::vector<std::string> step_sentences;   // what the timeline says in words
  std::vector<std::string> bound_sentences;  // the run against its prediction and its bound
  std::vector<std::string> story;            // how the run ended, and what it was doing; of the flight record
  std::string state;                         // finished, stopped, failed, running, killed or unknown
};

// Never throws for what the files hold.
ReportedRun report_of(RunFiles files);

// Without "<", so that it can stand in a script of a page whatever the files hold. `version`: of this program.
std::string json_of(std::span<const ReportedRun> runs, const std::string& version);

}  // namespace spillway
