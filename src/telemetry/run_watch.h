// Everything that watches one run: the flight record, the sinks, and a thread that sleeps, looks some times a second,
// and tells the observer how the step under way goes and when it takes far too long.
#pragma once

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "telemetry/event_sink.h"
#include "telemetry/flight_record.h"
#include "telemetry/live_tracker.h"
#include "telemetry/observer.h"
#include "telemetry/step_totals.h"
#include "telemetry/time_left.h"

namespace spillway {

struct WatchOptions {
  bool record = true;  // false: no events, no flight record, no thread; observers get what a step's record has
  RingCapacities capacities{};
  std::filesystem::path output_dir = {};
  double slow_seconds = 3;                // a step is not slow until it takes so much longer than it should
  std::filesystem::path event_log = {};   // for tests: every event is first written here. Empty: none
  std::int64_t virtual_device_bytes = 0;  // of the process's, but stand for another memory
};

// All but the EventRecorder is for the thread that runs the training. The observer outlives the watch.
class RunWatch {
 public:
  explicit RunWatch(TrainObserver& observer) : locked_(*this, observer) {}
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;
  ~RunWatch();

  // Once, when the output folder is there. Where it cannot hold a flight record, a note says so and nothing is
  // recorded.
  void open(const WatchOptions& options);

  // Null when nothing is recorded.
  EventRecorder* recorder() { return flight_ ? &flight_->recorder() : nullptr; }

  // Once, before the first event with a plan: what events stand for. From then on the observer hears of the run's
  // state. Where the flight record cannot hold it, a note says so.
  void describe(Catalog catalog);

  const Catalog& catalog() const { return catalog_; }

  // The observer, whose calls from here and from the watching thread take turns. What it threw in the watching thread
  // is thrown by the next call here.
  TrainObserver& observer() { return locked_; }

  // How many steps an evaluation lasts, about, until one was seen.
  void expect_evaluation(double steps);
  void begin(RunPhase phase);
  void end(RunPhase phase);
  void step_begins(std::int64_t step, std::int64_t total_steps);
  // Completes the record: totals, what is left, prediction and bound, the last commit. `plans`, in the catalog, ran for
  // the step.
  void step_ended(StepRecord& record, std::span<const std::int32_t> plans, std::int64_t evaluations_left);
  void finished();
  void stopped();  // before its last step, as it was asked to
  void failed();   // with an error that is reported

  void committed(std::int64_t step);  // any thread

 private:
  // Every call under one lock.
  class Locked : public TrainObserver {
   public:
    Locked(RunWatch& watch, TrainObserver& to) : watch_(watch), to_(to) {}
    void note(std::string_view sentence) override;
    void started(const RunSummary& run) override;
    void step(const StepRecord& record) override;
    void finished(const RunEnd& end) override;
    void live(const LiveStatus& status) override;
    void slow(std::string_view sentence) override;

   private:
    template <typename Call>
    void call(Call&& call);
    RunWatch& watch_;
    TrainObserver& to_;
  };

  void predict(std::span<const std::int32_t> plans, StepRecord& record) const;
  void watch();
  void look();
  void say_if_slow(const LiveStatus& status, std::int64_t now_ns);
  void sample_counters(EventSource source);
  LiveStatus status_at(std::int64_t now_ns);
  std::optional<double> expected_seconds() const;

  Locked locked_;
  std::mutex observer_mutex_;
  std::exception_ptr thrown_;  // by the observer, in the watching thread; under observer_mutex_

  std::unique_ptr<FlightFile> flight_;
  int log_ = -1;
  std::int64_t virtual_device_bytes_ = 0;
  Catalog catalog_;
  std::unique_ptr<StepTotalsSink> totals_;
  std::unique_ptr<LiveTracker> tracker_;
  std::unique_ptr<EventReader> reader_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  bool stop_ = false;
  std::int64_t total_steps_ = 0;
  TimeLeft time_left_;
  std::optional<double> seconds_left_;
  double predicted_seconds_ = 0;
  std::int64_t committed_step_ = -1;
  std::int64_t committed_ns_ = 0;

  // Of the watching thread.
  std::int64_t slow_step_ = 0;
  double slow_at_seconds_ = 0;
  double slow_seconds_ = 0;
  std::int64_t sampled_ns_ = 0;

  std::int64_t evaluation_ns_ = 0;
  std::thread thread_;
};

// A step is slow when it takes so many times what it should, and WatchOptions::slow_seconds longer.
constexpr double slow_factor = 4;

}  // namespace spillway
