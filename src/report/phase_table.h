// What each phase of a step did with its time, and how the disk was used in it; and the same in sentences.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "report/step_timeline.h"

namespace spillway {

struct PhaseUse {
  StepPhase phase = StepPhase::other;
  double seconds = 0;
  double waiting_seconds = 0;    // computing waited for disk or link
  double disk_busy_seconds = 0;  // something was read or written
  double read_busy_seconds = 0;  // each of its two directions
  double write_busy_seconds = 0;
  double link_busy_seconds = 0;  // something was copied to or from a device
  double read_bytes = 0;         // moves that cross the ends of the phase count in part
  double write_bytes = 0;
  double up_bytes = 0;
  double down_bytes = 0;
  std::array<double, wait_cause_count> wait_seconds{};  // add up to waiting_seconds

  double disk_idle_seconds() const { return seconds - disk_busy_seconds; }
};

// Of the phases that took time, in the order of StepPhase. Seconds add up to the step.
std::vector<PhaseUse> phase_table(const StepTimeline& timeline);

// Which phase leaves the disk idle, and which one waits for it and for what. Without full stops.
std::vector<std::string> sentences_of(const StepTimeline& timeline, const std::vector<PhaseUse>& phases);

// "optimizer state to be read"
std::string words_of(WaitCause cause);

}  // namespace spillway
