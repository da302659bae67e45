// The numbers of a run that another process may ask for at any time, and whether the run is well.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>

#include "telemetry/observer.h"
#include "telemetry/time_left.h"

namespace spillway {

// Filled as an observer; read by any thread without locks. Each number is whole by itself; two of them may be of
// different steps when they are read while a step ends.
class RunGauges : public TrainObserver {
 public:
  using Clock = std::int64_t (*)();  // nanoseconds, monotonic

  explicit RunGauges(Clock clock = monotonic_ns) : clock_(clock), progress_ns_(clock()) {}

  void note(std::string_view) override {}
  void started(const RunSummary& run) override;
  void step(const StepRecord& record) override;
  void finished(const RunEnd& end) override;
  void live(const LiveStatus& status) override;
  void slow(std::string_view) override { add(slow_reports_, 1); }

  // Prometheus' text format, 0.0.4. What is not known yet is left out.
  std::string text() const;

  // A run is unwell when in training no step ends within a multiple of the median step (before there is one, of the
  // prediction, if any), or in an evaluation no op. Loading, saving and a run that is over are well.
  struct Health {
    bool well = true;
    std::string sentence = {};
  };
  Health health() const;
  static constexpr double unwell_factor = 10;
  static constexpr double unwell_least_seconds = 60;  // beyond the expected; exports are made between steps

 private:
  using Number = std::atomic<double>;
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  static void add(Number& number, double value) { number.store(number.load() + value); }  // of one thread
  void progressed() { progress_ns_.store(clock_()); }
  double seconds_since(std::int64_t then_ns) const { return static_cast<double>(clock_() - then_ns) * 1e-9; }
  friend class ExpositionText;

  Clock clock_;

  // Written once, before `started_`.
  RunSummary run_;
  std::atomic<bool> started_{false};
  std::atomic<bool> finished_{false};

  // Of steps; written by the thread that trains.
  TimeLeft times_;  // its own
  std::atomic<std::int64_t> progress_ns_;
  Number step_{0}, total_steps_{unknown}, steps_{0}, tokens_{0};
  Number loss_{unknown}, eval_loss_{unknown}, learning_rate_{unknown}, grad_norm_{unknown};
  Number step_seconds_{unknown}, tokens_per_second_{unknown}, median_seconds_{unknown};
  Number predicted_seconds_{unknown}, lower_bound_seconds_{unknown}, seconds_left_{unknown};
  // By MemoryTag; the last, which never moves, is what is not known by tag.
  std::array<Number, memory_tag_count> read_bytes_{}, write_bytes_{};
  std::array<Number, step_phase_count> phase_seconds_{};
  std::array<Number, wait_cause_count> wait_seconds_{};
  Number stall_seconds_{0}, up_bytes_{0}, down_bytes_{0};

  // Of the run between steps; written by the thread that watches.
  std::atomic<RunPhase> phase_{RunPhase::load};
  std::array<Number, memory_tag_count> memory_bytes_{}, device_memory_bytes_{};
  std::atomic<bool> lives_{false};  // it was told of the run's state
  Number share_of_step_{0}, rss_bytes_{unknown}, expected_seconds_{unknown}, slow_reports_{0};
  Number committed_step_{unknown};
  std::atomic<std::int64_t> committed_ns_{0};
};

}  // namespace spillway
