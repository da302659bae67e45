#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/bytes.h"
#include "base/error.h"
#include "device/memory_info.h"
#include "formats/atomic_file.h"
#include "formats/machine_file.h"
#include "ops/adamw/adamw.h"
#include "ops/matmul/matmul.h"
#include "probe/probe.h"
#include "session/checkpoints.h"
#include "session/data.h"
#include "session/feed.h"
#include "session/known_machine.h"
#include "session/refined_rates.h"
#include "session/run_catalog.h"
#include "session/run_control.h"
#include "session/session.h"
#include "session/setup.h"
#include "session/step_runner.h"
#include "sim/op_rates.h"
#include "store/checksum.h"
#include "telemetry/metrics.h"
#include "telemetry/metrics_endpoint.h"
#include "telemetry/observer_list.h"
#include "telemetry/run_watch.h"
#include "telemetry/tensorboard_file.h"

namespace spillway {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::int64_t warm_steps = 3;  // caches are warm and lanes overlap

std::int64_t total_steps_of(const TrainOptions& options, std::int64_t windows, std::int64_t sequences) {
  if (options.max_steps >= 0) return options.max_steps;
  const double steps = options.num_train_epochs * static_cast<double>(windows) / static_cast<double>(sequences);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(steps)));
}

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
      watch_.finished();
      observer().note("stopped while loading, before the first step; nothing is lost: the same command starts again");
      tell_end(start, {});
    }
  }

 private:
  void run_since(SteadyClock::time_point start) {
    require_fit(setup_.planned, training_advice);
    checkpoints_.claim();
    if (checkpoints_.holds_finished_run()) {
      read_data();
      return checkpoints_.tell_finished(identity(), total_steps_);
    }
    require_trace_can_be_written();
    require_output_space();
    watch_.open(watch_options());
    try {
      train(start);
    } catch (const StoppedWhileLoading&) {
      throw;
    } catch (...) {
      watch_.failed();
      throw;
    }
    watch_.finished();
  }

  void train(SteadyClock::time_point start) {
    watch_.begin(RunPhase::load);
    read_data();
    for (const std::string& note : setup_.notes) observer().note(note);
    checkpoints_.find(identity());
    stop_loading_if_asked();
    state_ = checkpoints_.begin();
    if (state_.step > total_steps_)
      throw UserError("max_steps: the run is to have {} steps, and has made {} already; give more", total_steps_,
                      state_.step);
    open_executor();
    MetricsFile metrics(std::filesystem::path(options_.output_dir) / "metrics.jsonl", state_.step);
    keep_machine();
    open_events();
    watch_.end(RunPhase::load);
    observer().started(summary());
    watch_.begin(RunPhase::train);
    checkpoints_.start(*executor_);
    while (state_.step < total_steps_ && control_.stop == 0) {
      StepRecord record = train_step(state_.step);
      if (evaluation_is_due(record.step)) record.eval_loss = evaluate();
      metrics.write(record);
      if (events_) events_->write(record);
      observer().step(record);
      if (checkpoints_.export_is_due(state_.step)) runner_->flush();
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
    if (watch_.recorder() != nullptr && state_.step - checkpoints_.begin().step >= warm_steps)
      keep_op_times(setup_, *watch_.recorder(), state_.step);
    tell_end(start, complete ? options_.output_dir : std::string());
  }

  void tell_end(SteadyClock::time_point start, const std::string& output_dir) {
    observer().finished(
        {output_dir, state_.step, std::chrono::duration<double>(SteadyClock::now() - start).count(), peak_rss_bytes()});
  }

  void stop_loading_if_asked() const {
    if (control_.stop != 0) throw StoppedWhileLoading();
  }

  TrainObserver& observer() { return watch_.observer(); }

  void open_events() {
    if (options_.report_to != "tensorboard") return;
    std::filesystem::path folder = options_.logging_dir;
    if (folder.empty()) folder = std::filesystem::path(options_.output_dir) / "runs";
    events_.emplace(folder, state_.step + 1);
  }

  WatchOptions watch_options() const {
    WatchOptions watch;
    watch.record = options_.telemetry;
    watch.capacities = rings_for(setup_.planned.programs, setup_.choices);
    watch.output_dir = options_.output_dir;
    watch.event_log = options_.event_log;
    return watch;
  }

  // Asked before the run, since it is written when that has ended.
  void require_trace_can_be_written() const {
    if (options_.trace.empty()) return;
    const std::filesystem::path folder = std::filesystem::absolute(file_to_replace(options_.trace)).parent_path();
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error))
      throw UserError("trace: {} is not a folder; create it, or name another", folder.string());
  }

  // For the model, and for one export where there are any.
  void require_output_space() const {
    std::int64_t bytes = setup_.folder.tensor_bytes();
    if (options_.export_steps > 0)
      bytes += export_bytes({setup_.model, nullptr, setup_.folder, setup_.files}, !options_.save_only_model);
    require_space(options_.output_dir, bytes);
  }

  void write_run_trace() {
    if (options_.trace.empty() || watch_.recorder() == nullptr) return;
    write_trace_file(options_.trace, watch_.catalog(), events_of(*watch_.recorder()),
                     {"spillway train " + options_.output_dir + ", measured", options_.trace_steps});
  }

  // What this run is; where it stands follows.
  RunState identity() const {
    RunState state;
    state.model = facts_of(setup_.config.model);
    TrainOptions effective = options_;
    effective.dtype = name_of(setup_.choices.dtype);
    effective.max_seq_len = setup_.sequence_length;
    effective.memory_bytes = setup_.choices.budget_bytes;
    effective.threads = setup_.choices.threads;
    // What is exported later is read from here, wherever that is asked from.
    effective.model = plain_path(options_.model).string();
    for (std::vector<std::string>* const files : {&effective.data, &effective.eval_data}) {
      for (std::string& file : *files) file = plain_path(file).string();
    }
    state.options = texts_of_options(effective);
    state.data_tokens = tokens_ ? tokens_->count() : 0;
    state.data_hash = tokens_ ? fmt::format("{:016x}", tokens_->hash()) : "";
    state.numeric_key = numeric_key();
    const std::string text = dump(plan(0), setup_.planned.layout, setup_.steps.usual().program);
    state.plan_hash = fmt::format("{:016x}", checksum_of(std::as_bytes(std::span(text))));
    return state;
  }

  void save() {
    watch_.begin(RunPhase::save);
    // First, so that whoever finds a whole model knows whose it is.
    write_file_atomically(std::filesystem::path(options_.output_dir) / run_state_name, json_of(state_));
    ExecutorSource source(*executor_, setup_.model.state());
    save_model(source, setup_.model, &setup_.planned.layout, setup_.folder, setup_.files, options_.output_dir);
    watch_.end(RunPhase::save);
  }

  void read_data() {
    const auto read = [&](const std::vector<std::string>& files) {
      return read_tokens(files, options_.model, setup_.config.model.vocab_size, options_.output_dir, setup_.notes,
                         setup_.choices.budget_bytes, [this] { stop_loading_if_asked(); });
    };
    if (options_.max_steps != 0) {
      tokens_ = read(options_.data);
      windows_.emplace(*tokens_, setup_.sequence_length,
                       Windows::Order{options_.shuffle, static_cast<std::uint64_t>(options_.seed)});
    }
    if (setup_.evaluation) {
      eval_tokens_ = read(options_.eval_data);
      eval_windows_.emplace(*eval_tokens_, setup_.sequence_length, Windows::Order{});
    }
    // Forward alone is about a third of a step's work.
    const auto sequences = static_cast<double>(setup_.shape.sequences * setup_.shape.micro_batches);
    if (eval_windows_) watch_.expect_evaluation(static_cast<double>(eval_windows_->count()) / sequences / 3);
    stop_loading_if_asked();
    total_steps_ =
        total_steps_of(options_, windows_ ? windows_->count() : 0, setup_.shape.sequences * setup_.shape.micro_batches);
  }

  void open_executor() {
    ExecutorOptions execution;
    const Layout& layout = setup_.planned.layout;
    const SpillUse spill =
        spill_use(options_.machine, setup_.choices, layout.page_bytes, plan(0).pages * layout.page_bytes);
    check_fixed_memory(setup_.planned);
    execution.threads = setup_.choices.threads;
    execution.spill_dirs = setup_.choices.spill_dirs;
    execution.poison = options_.poison;
    execution.overlap = options_.overlap_steps;
    execution.huge_pages = options_.huge_pages;
    execution.delay_seed = static_cast<std::uint64_t>(options_.delay_seed);
    execution.spill_shares = spill.shares;
    execution.slots = checkpoints_.prepare_slots(spill.shares);
    if (spill.depth > 0) execution.io.depth = static_cast<int>(spill.depth);
    require_output_space();  // beside the slots
    execution.on_commit = [this](SlotSnapshot snapshot) { checkpoints_.reached(std::move(snapshot)); };
    execution.link = setup_.choices.link;
    execution.io.allow_uring = options_.allow_uring;
    if (options_.io_request_size_bytes > 0) execution.io.request_bytes = options_.io_request_size_bytes;
    execution.recorder = watch_.recorder();
    execution.tags = bundle_tags(setup_.planned, setup_.model.state());
    const std::vector<std::string> names = plan_names();
    Catalog catalog =
        catalog_of(setup_.planned, setup_.model.state(), std::vector<std::string_view>(names.begin(), names.end()));
    predict_steps(catalog);
    watch_.describe(std::move(catalog));
    executor_.emplace(setup_.planned.layout, setup_.planned.programs, setup_.planned.plans, setup_.kernels, execution);
    observer().note(executor_->describe_io());
    if (const std::string device = executor_->describe_device(); !device.empty()) observer().note(device);
    observer().note("products: " + matmul_numeric_key());
    checkpoints_.adopt(*executor_);
    executor_->settle(plan(0), plan(0).entry);
    const auto between = [this] { stop_loading_if_asked(); };
    if (!checkpoints_.restore(*executor_, between))
      load_weights(*executor_, setup_.planned.layout, setup_.model, setup_.folder, setup_.files, between);
    between();
    runner_.emplace(setup_, *executor_, windows_ ? &*windows_ : nullptr,
                    [this](bool wanted) { checkpoints_.expect_commit(wanted); });
    if (!setup_.evaluation) return;
    const std::int32_t evaluation = setup_.evaluation_program();
    set_frequencies(*executor_, evaluation, setup_.evaluation->inverse_frequencies, setup_.config.model);
    set_input(*executor_, evaluation, setup_.evaluation->scale, 1.0F);
    StepShape one = setup_.shape;
    one.micro_batches = 1;
    eval_feed_.emplace(*executor_, evaluation, setup_.evaluation->micro_batches, one, *eval_windows_);
  }

  // Beside the metrics: what a report says of the machine.
  void keep_machine() {
    const KnownMachine machine = recall_machine(options_.machine, setup_.choices, setup_.planned.layout.page_bytes);
    MachineRates rates = machine.rates;
    if (rates.identity == MachineIdentity{}) rates.identity = identify_machine();
    rates.ops.clear();
    try {
      write_file_atomically(std::filesystem::path(options_.output_dir) / run_machine_name, write_machine(rates));
    } catch (const DeviceError& error) {  // a report can do without
      watch_.observer().note(error.what());
    }
  }

  std::vector<std::string> plan_names() const {
    std::vector<std::string> names;
    for (const std::string_view name : setup_.steps.names()) names.emplace_back(name);
    if (setup_.evaluation) names.emplace_back("evaluate");
    for (std::size_t p = names.size(); p < setup_.planned.plans.size(); ++p) {
      names.push_back(names[static_cast<std::size_t>(setup_.planned.plans[p].program)] + " and commit");
    }
    return names;
  }

  // Where the machine's rates are known already; a run does not measure. A step that is taken back takes longer.
  void predict_steps(Catalog& catalog) const {
    const KnownMachine machine = recall_machine(options_.machine, setup_.choices, setup_.planned.layout.page_bytes);
    for (std::size_t p = 0; p < setup_.planned.plans.size(); ++p) {
      const Plan& step = setup_.planned.plans[p];
      const auto s = static_cast<std::size_t>(step.program);
      if (s >= setup_.steps.steps.size()) continue;
      const Program& program = setup_.steps.steps[s].program;
      const bool spills = step.traffic.read_bytes + step.traffic.write_bytes > 0;
      if (options_.machine.empty() && !is_known(program, machine, spills)) continue;
      const Timeline timeline = setup_.simulated(step, step_rates(program, machine.rates, machine.disk));
      catalog.plans[p].predicted_seconds = timeline.seconds;
      catalog.plans[p].lower_bound_seconds = timeline.lower_bound_seconds();
    }
  }

  // Nothing that matters is assumed.
  static bool is_known(const Program& program, const KnownMachine& machine, bool spills) {
    if (spills && machine.disk.source == RateSource::predicted) return false;
    const OpClasses ops = classes_of(program);
    return std::none_of(ops.classes.begin(), ops.classes.end(), [&](const OpClass& what) {
      return op_estimate(what, machine.rates).source == RateSource::roofline;
    });
  }

  const Plan& plan(std::int32_t program) const { return setup_.planned.plans[static_cast<std::size_t>(program)]; }

  RunSummary summary() const {
    RunSummary summary;
    summary.model = options_.model;
    summary.output_dir = options_.output_dir;
    summary.dtype = std::string(name_of(setup_.choices.dtype));
    summary.parameters = setup_.model.parameter_count();
    summary.total_steps = total_steps_;
    summary.tokens_per_step = setup_.shape.tokens() * setup_.shape.micro_batches;
    summary.threads = setup_.choices.threads;
    summary.budget_bytes = setup_.choices.budget_bytes;
    const Layout& layout = setup_.planned.layout;
    for (std::int32_t b = 0; b < layout.state_bundles; ++b)
      summary.state_bytes += layout.bundles[static_cast<std::size_t>(b)].bytes;
    summary.spilled_bytes = summary.state_bytes;
    const Plan& step = plan(0);
    std::vector<bool> in_memory(layout.bundles.size(), false);
    for (const StayId stay : step.entry.stays) in_memory[index_of(step.stays[index_of(stay)].bundle)] = true;
    for (std::size_t b = 0; b < in_memory.size(); ++b)
      summary.spilled_bytes -= in_memory[b] ? layout.bundles[b].bytes : 0;
    if (summary.spilled_bytes > 0 || step.traffic.write_bytes > 0) {
      summary.spill_dir = setup_.choices.spill_dirs.front().string();
    }
    return summary;
  }

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
    record.step_seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
    record.tokens_per_second = static_cast<double>(outcome.targets) / record.step_seconds;
    record.stall_seconds = outcome.report.stalled_seconds;
    record.rss_bytes = rss_bytes();
    record.disk_read_bytes = outcome.report.traffic.read_bytes;
    record.disk_write_bytes = outcome.report.traffic.write_bytes;
    watch_.step_ended(record, static_cast<std::uint8_t>(outcome.plan), evaluations_left(record.step));
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
    const std::int32_t evaluation = setup_.evaluation_program();
    if (!executor_->is_ready_for(plan(evaluation))) executor_->settle(plan(evaluation), plan(evaluation).entry);
    double loss = 0;
    std::int64_t targets = 0;
    for (std::int64_t at = 0; at < eval_windows_->count(); at += eval_feed_->sequences()) {
      targets += eval_feed_->fill(at, eval_windows_->count());
      executor_->run(plan(evaluation));
      loss += read_double(*executor_, evaluation, setup_.evaluation->loss);
    }
    watch_.end(RunPhase::evaluate);
    return loss / static_cast<double>(targets);
  }

  TrainingSetup& setup_;
  const TrainOptions& options_;
  RunWatch watch_;  // outlives the executor, which writes to its recorder
  RunControl& control_;
  RunCheckpoints checkpoints_;
  RunState state_;  // after the latest step
  std::optional<TokenStore> tokens_;
  std::optional<Windows> windows_;
  std::optional<TokenStore> eval_tokens_;
  std::optional<Windows> eval_windows_;
  std::int64_t total_steps_ = 0;
  std::optional<Executor> executor_;
  std::optional<StepRunner> runner_;
  std::optional<BatchFeed> eval_feed_;
  std::optional<TensorBoardFile> events_;
};

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
  TrainingSetup setup(options);
  TrainingRun(setup, observers, control == nullptr ? none : *control).run();
}

}  // namespace spillway
