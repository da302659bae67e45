// The numbers of a run in Prometheus' words: names with units, and a sentence each.
#include <prometheus/text_serializer.h>

#include <cmath>

#include "telemetry/run_gauges.h"

namespace spillway {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class ExpositionText {
 public:
  explicit ExpositionText(const RunGauges& gauges) : g_(gauges) {}

  std::string text() {
    run();
    steps();
    commits();
    memory();
    disk();
    if (has_device()) device();
    time();
    return prometheus::TextSerializer().Serialize(families_);
  }

 private:
  using Labels = std::vector<ClientMetric::Label>;

  MetricFamily& family(const char* name, MetricType type, const char* help) {
    return families_.emplace_back(MetricFamily{name, help, type, {}});
  }
  static void add(MetricFamily& to, double value, Labels labels = {}) {
    ClientMetric& metric = to.metric.emplace_back();
    metric.label = std::move(labels);
    (to.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  }
  void gauge(const char* name, double value, const char* help) {
    if (!std::isnan(value)) add(family(name, MetricType::Gauge, help), value);
  }
  void counter(const char* name, double value, const char* help) {
    add(family(name, MetricType::Counter, help), value);
  }
  template <typename Enum, std::size_t count>
  void each(const char* name, MetricType type, const char* label, const std::array<RunGauges::Number, count>& values,
            const char* help, const char* last = nullptr, std::size_t most = count) {
    MetricFamily& to = family(name, type, help);
    for (std::size_t i = 0; i < most; ++i) {
      const bool is_last = last != nullptr && i + 1 == count;
      add(to, values[i], {{label, is_last ? last : std::string(name_of(static_cast<Enum>(i)))}});
    }
  }

  void run() {
    gauge("spillway_healthy", g_.health().well ? 1 : 0, "1 while steps end in time, as /healthz says, otherwise 0.");
    MetricFamily& phases = family("spillway_run_phase", MetricType::Gauge, "1 for what the run does now.");
    for (std::size_t i = 0; i < run_phase_count; ++i) {
      const auto phase = static_cast<RunPhase>(i);
      add(phases, phase == g_.phase_ ? 1 : 0, {{"phase", std::string(name_of(phase))}});
    }
    if (!g_.started_.load(std::memory_order_acquire)) return;
    const RunSummary& run = g_.run_;
    add(family("spillway_run_info", MetricType::Gauge, "1; the labels say which run this is."), 1,
        {{"model", run.model}, {"output_dir", run.output_dir}, {"dtype", run.dtype}});
    gauge("spillway_model_parameters", static_cast<double>(run.parameters), "Parameters of the model.");
    gauge("spillway_compute_threads", static_cast<double>(run.threads), "Threads that compute.");
    gauge("spillway_memory_budget_bytes", static_cast<double>(run.budget_bytes),
          "Most memory that the process may have resident.");
    gauge("spillway_state_bytes", static_cast<double>(run.state_bytes), "Weights, masters and moments.");
    gauge("spillway_state_spilled_bytes", static_cast<double>(run.spilled_bytes), "Of the state, what lives on disk.");
  }

  void steps() {
    gauge("spillway_step", g_.step_, "Number of the latest step that ended, from 1; 0 before.");
    gauge("spillway_steps_planned", g_.total_steps_, "Steps that the run is to make in all.");
    counter("spillway_steps_total", g_.steps_, "Steps that ended in this process.");
    counter("spillway_tokens_total", g_.tokens_, "Target tokens of the steps that ended in this process.");
    gauge("spillway_step_age_seconds", g_.seconds_since(g_.progress_ns_),
          "Since the latest step ended, or what came before the next: an evaluation, its latest op, the start.");
    gauge("spillway_step_seconds", g_.step_seconds_, "Duration of the latest step.");
    gauge("spillway_step_median_seconds", g_.median_seconds_, "Median duration of the latest steps.");
    gauge("spillway_step_predicted_seconds", g_.predicted_seconds_, "Duration of a step as its plan predicts.");
    gauge("spillway_step_lower_bound_seconds", g_.lower_bound_seconds_, "No step that moves these bytes is faster.");
    gauge("spillway_run_left_seconds", g_.seconds_left_, "Until the run ends, evaluations counted.");
    gauge("spillway_tokens_per_second", g_.tokens_per_second_, "Of the latest step.");
    gauge("spillway_loss", g_.loss_, "Mean loss of the latest step, in nats a token.");
    gauge("spillway_eval_loss", g_.eval_loss_, "Mean loss of the latest evaluation, in nats a token.");
    gauge("spillway_learning_rate", g_.learning_rate_, "Of the latest step.");
    gauge("spillway_grad_norm", g_.grad_norm_, "Global norm of the latest step's gradient, before clipping.");
    counter("spillway_slow_reports_total", g_.slow_reports_, "Times that a step was said to take far too long.");
  }

  void commits() {
    gauge("spillway_commit_step", g_.committed_step_, "Step of the newest durable commit.");
    if (g_.committed_ns_ != 0)
      gauge("spillway_commit_age_seconds", g_.seconds_since(g_.committed_ns_),
            "Since the newest commit became durable.");
  }

  void memory() {
    gauge("process_resident_memory_bytes", g_.rss_bytes_,
          "Resident memory of the process, without the pages of a virtual device.");
    if (g_.lives_)
      each<MemoryTag>("spillway_memory_bytes", MetricType::Gauge, "tag", g_.memory_bytes_,
                      "Pages of the run by what is on them; they add up to all pages.");
  }

  bool has_device() const { return g_.started_.load(std::memory_order_acquire) && g_.run_.device_bytes > 0; }

  void device() {
    gauge("spillway_device_bytes", static_cast<double>(g_.run_.device_bytes), "Pages of the device.");
    if (g_.lives_)
      each<MemoryTag>("spillway_device_memory_bytes", MetricType::Gauge, "tag", g_.device_memory_bytes_,
                      "Pages of the device by what is on them; they add up to all of them.");
    counter("spillway_link_up_bytes_total", g_.up_bytes_, "Copied to the device by steps that ended.");
    counter("spillway_link_down_bytes_total", g_.down_bytes_, "Copied from the device by steps that ended.");
  }

  void disk() {
    each<MemoryTag>("spillway_disk_read_bytes_total", MetricType::Counter, "tag", g_.read_bytes_,
                    "Read from the spill directories by steps that ended.", "untagged");
    each<MemoryTag>("spillway_disk_write_bytes_total", MetricType::Counter, "tag", g_.write_bytes_,
                    "Written to the spill directories by steps that ended.", "untagged");
  }

  void time() {
    counter("spillway_stall_seconds_total", g_.stall_seconds_, "Computing waited for disk or link.");
    each<WaitCause>("spillway_wait_seconds_total", MetricType::Counter, "cause", g_.wait_seconds_,
                    "What computing waited for; they add up to the stall.", nullptr,
                    has_device() ? wait_cause_count : disk_wait_cause_count);
    each<StepPhase>("spillway_phase_seconds_total", MetricType::Counter, "phase", g_.phase_seconds_,
                    "Where the time of the steps went, waits included; they add up to it.");
  }

  const RunGauges& g_;
  std::vector<MetricFamily> families_;
};

std::string RunGauges::text() const { return ExpositionText(*this).text(); }

}  // namespace spillway
