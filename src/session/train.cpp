#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/steady_clock.h"
#include "device/memory_info.h"
#include "formats/atomic_file.h"
#include "ops/adamw/adamw.h"
#include "ops/matmul/matmul.h"
#include "session/checkpoints.h"
#include "session/evaluation.h"
#include "session/known_machine.h"
#include "session/output_checks.h"
#include "session/refined_rates.h"
#include "session/run_catalog.h"
#include "session/run_control.h"
#include "session/run_description.h"
#include "session/session.h"
#include "session/setup.h"
#include "session/step_runner.h"
#include "session/training_data.h"
#include "telemetry/metrics.h"
#include "telemetry/metrics_endpoint.h"
#include "telemetry/observer_list.h"
#include "telemetry/run_watch.h"
#include "telemetry/tensorboard_file.h"

namespace spillway {
namespace {

constexpr std::int64_t warm_steps = 3;  // caches are warm and lanes overlap

// Thrown while a run loads and is asked to stop: it has made no step that could be lost.
struct StoppedWhileLoading {};

class TrainingRun {
 public:
  TrainingRun(TrainingSetup& setup, TrainObserver& observer, RunControl& control)
      : setup_(setup), options_(setup.options), watch_(observer), control_(control), checkpoints_(setup, watch_) {}

  void run() {
    const auto start = SteadyClock::now();
    try {
      run_since(start);
    } catch (const StoppedWhileLoading&) {
      executor_.reset();
      checkpoints_.abandon();
      watch_.stopped();
      observer().note("stopped while loading, before the first step; nothing is lost: the same command starts again");
      tell_end(start, {});
    }
  }

 private:
  void run_since(SteadyClock::time_point start) {
    require_fit(setup_.planned, setup_.advice());
    checkpoints_.claim();
    if (checkpoints_.holds_finished_run()) {
      read_data();
      return checkpoints_.tell_finished(identity(), total_steps_);
    }
    require_trace_can_be_written(options_);
    require_events_can_be_written(options_);
    require_output_space(setup_);
    watch_.open(watch_options());
    try {
      train(start);
    } catch (const StoppedWhileLoading&) {
      throw;
    } catch (...) {
      watch_.failed();
      throw;
    }
    if (state_.step == total_steps_) {
      watch_.finished();
    } else {
      watch_.stopped();
    }
  }

  void train(SteadyClock::time_point start) {
    watch_.begin(RunPhase::load);
    read_data();
    for (const std::string& note : setup_.notes) observer().note(note);
    checkpoints_.find(identity(), total_steps_);
    stop_loading_if_asked();
    state_ = checkpoints_.begin();
    if (watch_.recorder() != nullptr && total_steps_ - state_.step >= warm_steps) op_times_.emplace(setup_);
    open_executor();
    checkpoints_.write_branches();
    MetricsFile metrics(std::filesystem::path(options_.output_dir) / "metrics.jsonl", state_.step);
    keep_machine();
    open_events();
    watch_.end(RunPhase::load);
    observer().started(summary_of(setup_, total_steps_));
    watch_.begin(RunPhase::train);
    checkpoints_.start(*executor_);
    while (state_.step < total_steps_ && control_.stop == 0) {
      StepRecord record = train_step(state_.step);
      if (evaluation_is_due(record.step)) record.eval_loss = evaluate();
      metrics.write(record);
      if (events_) events_->write(record);
      observer().step(record);
      if (checkpoints_.exports().is_due(state_.step)) runner_->flush();
      checkpoints_.after_step(state_);
    }
    runner_->flush();
    executor_->drain();
    watch_.end(RunPhase::train);
    const bool complete = state_.step == total_steps_;
    if (complete) {
      save();
    } else {
      observer().note(checkpoints_.stop(state_));
    }
    executor_.reset();  // and its memory, before the trace takes some
    if (complete) checkpoints_.finish();
    write_run_trace();
    keep_op_times();
    tell_end(start, complete ? options_.output_dir : std::string());
  }

  void tell_end(SteadyClock::time_point start, const std::string& output_dir) {
    observer().finished({output_dir, state_.step, seconds_since(start), without_device(peak_rss_bytes())});
  }

  // Pages that are the process's but stand for another memory. An accelerator's are not the process's.
  std::int64_t virtual_device_bytes() const {
    return setup_.choices.accelerator ? 0 : plan(0).device_pages * setup_.planned.layout.page_bytes;
  }
  std::int64_t without_device(std::int64_t resident_bytes) const {
    return std::max<std::int64_t>(0, resident_bytes - device_resident_bytes_);
  }

  void stop_loading_if_asked() const {
    if (control_.stop != 0) throw StoppedWhileLoading();
  }

  TrainObserver& observer() { return watch_.observer(); }

  void open_events() {
    if (options_.report_to == "tensorboard") events_.emplace(event_folder(options_), state_.step + 1);
  }

  WatchOptions watch_options() const {
    WatchOptions watch;
    watch.record = options_.telemetry;
    watch.capacities = rings_for(setup_.planned.programs, setup_.choices);
    watch.output_dir = options_.output_dir;
    watch.event_log = options_.event_log;
    watch.virtual_device_bytes = virtual_device_bytes();
    return watch;
  }

  void write_run_trace() {
    if (options_.trace.empty() || watch_.recorder() == nullptr) return;
    write_trace_file(options_.trace, watch_.catalog(), visit_events(*watch_.recorder()),
                     {"spillway train " + options_.output_dir + ", measured", options_.trace_steps});
  }

  void keep_op_times() {
    if (!op_times_ || state_.step - checkpoints_.begin().step < warm_steps) return;
    if (const std::string why_not = op_times_->keep(*watch_.recorder(), state_.step); !why_not.empty())
      observer().note(why_not);
  }

  RunState identity() const { return identity_of(setup_, data_->tokens()); }

  void save() {
    watch_.begin(RunPhase::save);
    checkpoints_.finish_exports();
    // First, so that whoever finds a whole model knows whose it is.
    write_file_atomically(std::filesystem::path(options_.output_dir) / run_state_name, json_of(state_));
    ExecutorSource source(*executor_, setup_.model.state());
    save_model(source, setup_.model, &setup_.planned.layout, setup_.folder, setup_.files, options_.output_dir);
    watch_.end(RunPhase::save);
  }

  void read_data() {
    const auto between = [this] { stop_loading_if_asked(); };
    data_.emplace(setup_, between);
    total_steps_ = data_->total_steps();
    // Forward alone is about a third of a step's work.
    const auto sequences = static_cast<double>(setup_.shape.sequences * setup_.shape.micro_batches);
    if (const Windows* const windows = data_->eval_windows(); windows != nullptr)
      watch_.expect_evaluation(static_cast<double>(windows->count()) / sequences / 3);
    between();
  }

  void open_executor() {
    ExecutorOptions execution;
    const Layout& layout = setup_.planned.layout;
    const SpillUse spill = spill_use(options_.machine, setup_.choices, layout.page_bytes, setup_.planned.probe_bytes());
    check_fixed_memory(setup_.planned);
    execution.threads = setup_.choices.threads;
    execution.spill_dirs = setup_.choices.spill_dirs;
    execution.poison = options_.poison;
    execution.overlap = options_.overlap_steps;
    execution.replay = options_.device_replay;
    execution.huge_pages = options_.huge_pages;
    execution.delay_seed = static_cast<std::uint64_t>(options_.delay_seed);
    execution.spill_shares = spill.shares;
    execution.slots = checkpoints_.prepare_slots(spill.shares);
    if (spill.depth > 0) execution.io.depth = static_cast<int>(spill.depth);
    require_space_beside(execution.slots);
    execution.on_commit = [this](SlotSnapshot snapshot) { checkpoints_.reached(std::move(snapshot)); };
    execution.link = setup_.choices.link;
    execution.accelerator = setup_.choices.accelerator;
    if (!execution.accelerator) execution.update = setup_.choices.update;  // a virtual device is held to them
    execution.io.allow_uring = options_.allow_uring;
    execution.io.throttle_bytes_per_second = options_.disk_bytes_per_second;
    if (options_.io_request_size_bytes > 0) execution.io.request_bytes = options_.io_request_size_bytes;
    execution.recorder = watch_.recorder();
    execution.tags = bundle_tags(setup_.planned, setup_.model.state());
    watch_.describe(catalog_of(setup_));
    executor_.emplace(setup_.planned.layout, setup_.planned.programs, setup_.planned.plans, setup_.kernels, execution);
    observer().note(executor_->describe_pages());
    observer().note(executor_->describe_io());
    if (const std::string device = executor_->describe_device(); !device.empty()) observer().note(device);
    observer().note("products: " +
                    (setup_.choices.accelerator ? setup_.choices.accelerator->numeric_key() : matmul_numeric_key()));
    device_resident_bytes_ = virtual_device_bytes();
    checkpoints_.adopt(*executor_);
    executor_->settle(plan(0), plan(0).entry);
    const auto between = [this] { stop_loading_if_asked(); };
    if (!checkpoints_.restore(*executor_, between))
      load_weights(*executor_, setup_.planned.layout, setup_.model, setup_.folder, setup_.files, between);
    between();
    runner_.emplace(setup_, *executor_, data_->windows(), [this](bool wanted) { checkpoints_.expect_commit(wanted); });
    if (!setup_.evaluation) return;
    StepShape one = setup_.shape;
    one.micro_batches = 1;
    evaluation_.emplace(*executor_, setup_.evaluation_program(), *setup_.evaluation, one, *data_->eval_windows(),
                        setup_.config.model);
  }

  // A run that is refused keeps no slots that were made for it.
  void require_space_beside(std::shared_ptr<SlotStore>& slots) {
    try {
      require_output_space(setup_);
    } catch (const DeviceError&) {
      slots = nullptr;
      try {
        checkpoints_.abandon();
      } catch (const DeviceError& fault) {
        observer().note(fmt::format("what was reserved for the run stays: {}", fault.what()));
      }
      throw;
    }
  }

  // Beside the metrics: what a report says of the machine.
  void keep_machine() {
    try {
      write_run_machine(setup_);
    } catch (const DeviceError& error) {  // a report can do without
      observer().note(error.what());
    }
  }

  const Plan& plan(std::int32_t program) const { return setup_.planned.plans[static_cast<std::size_t>(program)]; }

  StepRecord train_step(std::int64_t step) {
    const auto start = SteadyClock::now();
    watch_.step_begins(step + 1, total_steps_);
    const double rate = learning_rate_at(options_, step, total_steps_);
    state_.products.advance(settings());
    const std::int64_t first_sequence = state_.sequences;
    state_.sequences += runner_->sequences();
    state_.step = step + 1;
    const bool commits =
        checkpoints_.begin_step(state_, control_.commit.exchange(false), runner_->next_way() == UpdateWay::deferred);
    const StepRunner::Outcome outcome =
        runner_->run({step + 1, first_sequence, rate, adamw_scalars(settings(), state_.products, rate), commits});

    StepRecord record;
    record.step = step + 1;
    record.total_steps = total_steps_;
    record.loss = static_cast<float>(outcome.loss);
    record.grad_norm = static_cast<float>(outcome.norm);
    record.clipped = outcome.clipped;
    if (options_.max_grad_norm > 0) record.clip = outcome.taken_back ? "reverted" : name_of(outcome.way);
    record.learning_rate = rate;
    record.tokens = outcome.targets;
    record.step_seconds = seconds_since(start);
    record.tokens_per_second = static_cast<double>(outcome.targets) / record.step_seconds;
    record.stall_seconds = outcome.report.stalled_seconds;
    record.rss_bytes = without_device(rss_bytes());
    record.disk_read_bytes = outcome.report.traffic.read_bytes;
    record.disk_write_bytes = outcome.report.traffic.write_bytes;
    if (setup_.planned.has_device()) note_sides(outcome, record);
    watch_.step_ended(record, outcome.plans, evaluations_left(record.step));
    if (record.totals) {
      record.stall_seconds =
          std::accumulate(record.totals->wait_seconds.begin(), record.totals->wait_seconds.end(), 0.0);
      for (std::size_t tag = 0; tag < memory_tag_count; ++tag) {
        record.totals->read_bytes[tag] = outcome.report.traffic_by_tag[tag].read_bytes;
        record.totals->write_bytes[tag] = outcome.report.traffic_by_tag[tag].write_bytes;
      }
    }
    if (!std::isfinite(record.loss) || !std::isfinite(record.grad_norm)) {
      throw UserError(
          "step {}: loss is {} and the gradient norm {}; training has diverged: lower learning_rate, or set "
          "max_grad_norm or warmup_steps",
          record.step, record.loss, record.grad_norm);
    }
    return record;
  }

  // With a device: what crossed its link, and who updated.
  void note_sides(const StepRunner::Outcome& outcome, StepRecord& record) const {
    record.link = LinkTraffic{outcome.report.up_bytes, outcome.report.down_bytes};
    const UpdateSides sides = update_sides(
        plan(outcome.plan), *setup_.planned.programs[static_cast<std::size_t>(plan(outcome.plan).program)]);
    record.host_updates = sides.host_ops;
    record.device_updates = sides.other_ops;
  }

  AdamwSettings settings() const {
    return {options_.adam_beta1, options_.adam_beta2, options_.adam_epsilon, options_.weight_decay};
  }

  bool evaluation_is_due(std::int64_t step) const {
    if (!setup_.evaluation) return false;
    return step == total_steps_ || (options_.eval_steps > 0 && step % options_.eval_steps == 0);
  }

  // After step `step`, the one that is due then included.
  std::int64_t evaluations_left(std::int64_t step) const {
    if (!setup_.evaluation) return 0;
    if (options_.eval_steps <= 0) return 1;
    const std::int64_t regular = total_steps_ / options_.eval_steps - (step - 1) / options_.eval_steps;
    return regular + (total_steps_ % options_.eval_steps == 0 ? 0 : 1);
  }

  double evaluate() {
    runner_->flush();
    watch_.begin(RunPhase::evaluate);
    const Plan& evaluation = plan(setup_.evaluation_program());
    if (!executor_->is_ready_for(evaluation)) executor_->settle(evaluation, evaluation.entry);
    const double loss = evaluation_->run(evaluation, data_->eval_windows()->count()).mean();
    watch_.end(RunPhase::evaluate);
    return loss;
  }

  TrainingSetup& setup_;
  const TrainOptions& options_;
  RunWatch watch_;  // outlives the executor, which writes to its recorder
  RunControl& control_;
  RunCheckpoints checkpoints_;
  RunState state_;  // after the latest step
  std::optional<TrainingData> data_;
  std::int64_t total_steps_ = 0;
  std::optional<KeptOpTimes> op_times_;
  std::optional<Executor> executor_;
  std::int64_t device_resident_bytes_ = 0;  // of the process's peak, since the executor was opened
  std::optional<StepRunner> runner_;
  std::optional<Evaluation> evaluation_;
  std::optional<TensorBoardFile> events_;
};

// In the first run on a machine that has something to choose: measures the processor and the disk, in less than two
// seconds and within the memory of the run's pages, and keeps what it found. Ops are left to the run itself, which
// keeps their times at its end.
bool measured_what_was_guessed(const TrainingSetup& setup, TrainObserver& observer) {
  if (!setup.guessed_the_disk()) return false;
  KernelCache no_kernels;
  const std::int64_t page_bytes = setup.planned.layout.page_bytes;
  const KnownMachine known =
      know_machine(setup.options.machine, setup.choices, {}, no_kernels, page_bytes, setup.planned.probe_bytes());
  for (const std::string& note : known.notes) observer.note(note);
  if (setup.guessed_the_disk()) return false;  // a disk without room or that fails, or a cache that cannot be written
  observer.note(fmt::format("the disk was measured, for this run and later ones: {}/s read, {}/s written",
                            format_bytes(static_cast<std::int64_t>(known.disk.read_bytes_per_second)),
                            format_bytes(static_cast<std::int64_t>(known.disk.write_bytes_per_second))));
  return true;
}

}  // namespace

void run_train(const TrainOptions& options, TrainObserver& observer, RunControl* control) {
  validate(options, TrainUse::train);
  RunControl none;
  RunGauges gauges;
  ObserverList observers;
  observers.add(observer);
  std::optional<MetricsEndpoint> endpoint;
  if (!options.metrics_address.empty()) {
    endpoint.emplace(parse_listen_address(options.metrics_address), gauges);
    observers.add(gauges);
    observer.note("metrics are at " + endpoint->url());
  }
  std::optional<TrainingSetup> setup(options);
  if (measured_what_was_guessed(*setup, observer)) setup.emplace(options);
  TrainingRun(*setup, observers, control == nullptr ? none : *control).run();
}

}  // namespace spillway
