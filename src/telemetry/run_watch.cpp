#include "telemetry/run_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "device/memory_info.h"

namespace spillway {
namespace {

constexpr std::chrono::milliseconds look_every{100};
constexpr std::int64_t sample_every_ns = 1'000'000'000;

// What the kernel says this process has caused to be read from and written to storage; nothing where it does not say.
std::optional<std::pair<std::int64_t, std::int64_t>> system_io() {
  std::ifstream file("/proc/self/io");
  std::optional<std::int64_t> read;
  std::optional<std::int64_t> write;
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value) {
    if (name == "read_bytes:") read = value;
    if (name == "write_bytes:") write = value;
  }
  if (!read || !write) return std::nullopt;
  return std::pair(*read, *write);
}

}  // namespace

// --- The observer ---

template <typename Call>
void RunWatch::Locked::call(Call&& call) {
  const std::lock_guard lock(watch_.observer_mutex_);
  if (watch_.thrown_) std::rethrow_exception(std::exchange(watch_.thrown_, nullptr));
  call();
}

void RunWatch::Locked::note(std::string_view sentence) {
  call([&] { to_.note(sentence); });
}
void RunWatch::Locked::started(const RunSummary& run) {
  call([&] { to_.started(run); });
}
void RunWatch::Locked::step(const StepRecord& record) {
  call([&] { to_.step(record); });
}
void RunWatch::Locked::finished(const RunEnd& end) {
  call([&] { to_.finished(end); });
}
void RunWatch::Locked::live(const LiveStatus& status) {
  call([&] { to_.live(status); });
}
void RunWatch::Locked::slow(std::string_view sentence) {
  call([&] { to_.slow(sentence); });
}

// --- From the training thread ---

void RunWatch::open(const WatchOptions& options) {
  slow_seconds_ = options.slow_seconds;
  virtual_device_bytes_ = options.virtual_device_bytes;
  if (!options.record) return;
  try {
    flight_ = std::make_unique<FlightFile>(options.output_dir / flight_file_name, options.capacities);
  } catch (const DeviceError& error) {  // a file system that cannot map files, for one
    locked_.note(fmt::format("{}; the run goes on unobserved: no flight record, no live view, no trace", error.what()));
    return;
  }
  if (options.event_log.empty()) return;
  log_ = ::open(options.event_log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (log_ < 0) throw DeviceError("{}: cannot be written ({})", options.event_log.string(), errno_text(errno));
  flight_->recorder().set_log(log_);
}

RunWatch::~RunWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (log_ >= 0) ::close(log_);
}

void RunWatch::describe(Catalog catalog) {
  if (!flight_) return;
  catalog_ = std::move(catalog);
  try {
    flight_->describe(catalog_);
  } catch (const DeviceError& error) {  // no room for it, for one
    locked_.note(fmt::format("{}; a report of this run will show no timeline", error.what()));
  }
  if (!catalog_.plans.empty()) predicted_seconds_ = catalog_.plans.front().predicted_seconds;
  totals_ = std::make_unique<StepTotalsSink>(catalog_);
  tracker_ = std::make_unique<LiveTracker>(catalog_);
  reader_ = std::make_unique<EventReader>(flight_->recorder());
  reader_->attach(*totals_);
  reader_->attach(*tracker_);
  thread_ = std::thread([this] { watch(); });
}

void RunWatch::expect_evaluation(double steps) {
  const std::lock_guard lock(mutex_);
  time_left_.expect_evaluation(steps);
}

void RunWatch::begin(RunPhase phase) {
  if (flight_) {
    flight_->recorder().phase_begin(phase);
    sample_counters(EventSource::compute);
  }
  if (phase != RunPhase::evaluate) return;
  evaluation_ns_ = monotonic_ns();
  if (flight_) flight_->keep_steps();
}

void RunWatch::end(RunPhase phase) {
  if (flight_) {
    sample_counters(EventSource::compute);
    flight_->recorder().phase_end(phase);
  }
  if (phase != RunPhase::evaluate) return;
  const std::lock_guard lock(mutex_);
  time_left_.after_evaluation(static_cast<double>(monotonic_ns() - evaluation_ns_) * 1e-9);
}

void RunWatch::step_begins(std::int64_t step, std::int64_t total_steps) {
  {
    const std::lock_guard lock(mutex_);
    total_steps_ = total_steps;
  }
  if (!flight_) return;
  flight_->recorder().set_step(static_cast<std::int32_t>(step));
  flight_->recorder().step_begin();
}

// One after the other. Nothing where one of them is not known.
void RunWatch::predict(std::span<const std::int32_t> plans, StepRecord& record) const {
  double predicted = 0;
  double bound = 0;
  for (const std::int32_t number : plans) {
    const CatalogPlan* const plan = catalog_.plan(static_cast<std::uint8_t>(number));
    if (plan == nullptr || plan->predicted_seconds <= 0) return;
    predicted += plan->predicted_seconds;
    bound += plan->lower_bound_seconds;
  }
  if (predicted > 0) record.predicted_seconds = predicted;
  if (bound > 0) record.lower_bound_seconds = bound;
}

void RunWatch::step_ended(StepRecord& record, std::span<const std::int32_t> plans, std::int64_t evaluations_left) {
  if (flight_) {
    flight_->recorder().step_end(static_cast<double>(record.loss));
    flight_->step_done(record.step, record.total_steps);
  }
  if (reader_) {
    reader_->read();
    record.totals = totals_->finish(record.step_seconds);
  }
  predict(plans, record);
  const std::lock_guard lock(mutex_);
  time_left_.after_step(record.step_seconds);
  record.seconds_left = time_left_.seconds(record.total_steps - record.step, evaluations_left);
  seconds_left_ = record.seconds_left;
  if (committed_step_ >= 0) record.committed_step = committed_step_;
}

void RunWatch::finished() {
  if (flight_) flight_->ended(FlightEnd::finished);
}

void RunWatch::stopped() {
  if (flight_) flight_->ended(FlightEnd::stopped);
}

void RunWatch::failed() {
  if (!flight_) return;
  flight_->recorder().note(EventSource::compute, flight_->recorder().step(), NoteKind::failure, 0);
  flight_->ended(FlightEnd::failed);
}

void RunWatch::committed(std::int64_t step) {
  if (flight_) flight_->committed(step);
  const std::lock_guard lock(mutex_);
  committed_step_ = step;
  committed_ns_ = monotonic_ns();
}

// --- The watching thread ---

void RunWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, look_every, [&] { return stop_; })) {
    lock.unlock();
    try {
      look();
    } catch (...) {
      const std::lock_guard observer_lock(observer_mutex_);
      if (!thrown_) thrown_ = std::current_exception();
      return;
    }
    lock.lock();
  }
}

void RunWatch::look() {
  reader_->read();
  const std::int64_t now_ns = monotonic_ns();
  if (now_ns - sampled_ns_ >= sample_every_ns) {
    sample_counters(EventSource::background);
    sampled_ns_ = now_ns;
  }
  const LiveStatus status = status_at(now_ns);
  say_if_slow(status, now_ns);
  locked_.live(status);
}

LiveStatus RunWatch::status_at(std::int64_t now_ns) {
  LiveStatus status;
  tracker_->tell(status, now_ns);
  status.memory_bytes = totals_->memory_bytes();
  status.device_memory_bytes = totals_->memory_bytes(EventMemory::device);
  status.rss_bytes = std::max<std::int64_t>(0, rss_bytes() - virtual_device_bytes_);
  const auto [cause, seconds] = totals_->largest_wait();
  if (seconds > 0) {
    status.largest_wait = std::string(name_of(cause));
    status.largest_wait_seconds = seconds;
  }
  const std::lock_guard lock(mutex_);
  status.total_steps = total_steps_;
  status.expected_step_seconds = expected_seconds();
  status.seconds_left = seconds_left_;
  if (committed_step_ >= 0) {
    status.committed_step = committed_step_;
    status.seconds_since_commit = static_cast<double>(now_ns - committed_ns_) * 1e-9;
  }
  return status;
}

std::optional<double> RunWatch::expected_seconds() const {
  if (const std::optional<double> median = time_left_.median()) return median;
  if (predicted_seconds_ > 0) return predicted_seconds_;
  return std::nullopt;
}

void RunWatch::say_if_slow(const LiveStatus& status, std::int64_t now_ns) {
  if (status.step_seconds == 0 || !status.expected_step_seconds) return;
  const double expected = *status.expected_step_seconds;
  if (status.step != slow_step_) {
    slow_step_ = status.step;
    slow_at_seconds_ = std::max(slow_factor * expected, expected + slow_seconds_);
  }
  if (status.step_seconds < slow_at_seconds_) return;
  slow_at_seconds_ = 2 * status.step_seconds;
  flight_->recorder().note(EventSource::background, static_cast<std::int32_t>(status.step), NoteKind::slow_step,
                           static_cast<std::int64_t>(status.step_seconds * 1e9));
  locked_.slow(fmt::format("step {} has taken {:.1f} s so far, {:.1f} s were expected: {}", status.step,
                           status.step_seconds, expected, tracker_->doing(now_ns)));
}

void RunWatch::sample_counters(EventSource source) {
  EventRecorder& recorder = flight_->recorder();
  const auto sample = [&](CounterKind kind, std::int64_t value) { recorder.counter(source, 0, kind, value); };
  sample(CounterKind::rss_bytes, rss_bytes());
  if (const auto io = system_io()) {
    sample(CounterKind::system_read_bytes, io->first);
    sample(CounterKind::system_write_bytes, io->second);
  }
}

}  // namespace spillway
