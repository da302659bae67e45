// When a run commits: as save_steps says, or, left to itself, as often as costs little; and never faster than the disk
// makes commits durable. Decides nothing that changes a bit of the result.
#pragma once

#include <cstdint>
#include <string>

namespace spillway {

class CommitPace {
 public:
  // `is_free`: a commit writes little beyond what a step writes anyway, and a step hardly waits for it.
  CommitPace(std::int64_t save_steps, bool is_free) : save_steps_(save_steps), is_free_(is_free) {}

  // `extra_bytes`: what a commit writes beyond what the step writes anyway, of `state_bytes` in all.
  static bool is_free(std::int64_t extra_bytes, std::int64_t state_bytes) {
    return static_cast<double>(extra_bytes) <= free_share * static_cast<double>(state_bytes);
  }

  bool never() const { return save_steps_ < 0; }
  // Whether every step commits, as long as the disk can keep up.
  bool every_step() const { return save_steps_ == 1 || (save_steps_ == 0 && is_free_); }
  // Whether this step is to commit, asked before each, at this time on a steady clock. `busy`: one more commit would
  // have to wait for those before. One that save_steps asks for is then owed: due at every step until one has begun.
  // `is_dear`: a commit of this step is not free even if others are.
  bool is_due(std::int64_t step, double now_seconds, bool busy, bool is_dear = false);
  // Instead of asking: this step commits for nobody. What save_steps asks of it is owed.
  void pass_over(std::int64_t step) { owed_ = owed_ || falls_on(step); }
  // A commit was begun at this time, due or not: none is owed any more. It took so long to become durable.
  void begun(double now_seconds) {
    last_seconds_ = now_seconds;
    owed_ = false;
  }
  void durable(double seconds) { cost_seconds_ = seconds; }
  // From one commit to the next, where a step takes so long and what a commit writes beyond it keeps the disk busy for
  // `write_seconds`. What its flushes take is not known before a run, and spaces commits out further.
  double seconds_between(double step_seconds, double write_seconds) const;
  // Commits that fell on a step that was busy, each counted once.
  std::int64_t postponed() const { return postponed_; }
  // "every step: the state is on disk anyway", for the user.
  std::string describe() const;

  // Left to itself, a commit that writes more than this share of the state is spaced out…
  static constexpr double free_share = 0.05;
  // …so that the disk is busy with commits for at most this share of the time…
  static constexpr double busy_share = 0.02;
  // …and that the disk wears little where it is fast: at most this much work is lost, and 2 GB of state make 0.6 TB a
  // day.
  static constexpr double least_seconds = 300;

 private:
  // save_steps asks for a commit of this step.
  bool falls_on(std::int64_t step) const { return save_steps_ > 0 && step % save_steps_ == 0; }

  std::int64_t save_steps_;
  bool is_free_;
  double last_seconds_ = -1;  // below 0: none yet
  double cost_seconds_ = 0;
  bool owed_ = false;  // of save_steps: fell due, and none has begun since
  std::int64_t postponed_ = 0;
};

}  // namespace spillway
