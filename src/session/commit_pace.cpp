#include "session/commit_pace.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace spillway {

bool CommitPace::is_due(std::int64_t step, double now_seconds, bool busy, bool is_dear) {
  if (never()) return false;
  bool due = (is_free_ && !is_dear) || last_seconds_ < 0 ||
             now_seconds - last_seconds_ >= std::max(least_seconds, cost_seconds_ / busy_share);
  bool falls_here = due;  // and not only owed from a step before
  if (save_steps_ > 0) {
    falls_here = falls_on(step);
    pass_over(step);
    due = owed_;
  }
  if (falls_here && busy) ++postponed_;
  return due && !busy;
}

double CommitPace::seconds_between(double step_seconds, double write_seconds) const {
  if (never()) return std::numeric_limits<double>::infinity();
  double seconds = step_seconds;
  if (save_steps_ > 0) {
    seconds *= static_cast<double>(save_steps_);
  } else if (!is_free_) {
    seconds = std::max(seconds, least_seconds);
  }
  return std::max(seconds, write_seconds);
}

std::string CommitPace::describe() const {
  if (never()) return "nothing is committed (save_steps is -1)";
  if (save_steps_ == 1) return "commits after every step";
  if (save_steps_ > 1) return fmt::format("commits after every {} steps", save_steps_);
  if (is_free_) return "commits after every step, since the state goes to disk anyway";
  return fmt::format(
      "commits are spaced out to {:.0f}% of the time, at least {:.0f} s apart, since each would cost a step time or "
      "writes",
      100 * busy_share, least_seconds);
}

}  // namespace spillway
