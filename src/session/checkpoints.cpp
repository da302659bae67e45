#include "session/checkpoints.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway {
namespace {

constexpr std::int64_t run_text_room_bytes = 64 * kib;  // what a RunState as JSON may grow by

}  // namespace

// --- Before the run ---

void RunCheckpoints::claim() {
  std::error_code error;
  if (std::filesystem::is_directory(output_dir(), error)) lock_ = FolderLock(output_dir());
  stores_.read();
  if (setup_.options.resume_from_checkpoint != "none") finished_ = finished_run(output_dir());
  if (finished_) return;
  is_new_ = !stores_.any() && exports_in(output_dir()).empty() && last_recorded_step(output_dir()) == 0;
  cut_short_ = claim_output(setup_.options, stores_.any());
  if (!lock_.held()) lock_ = FolderLock(output_dir());
  if (!lock_.note().empty()) observer_.note(lock_.note());
}

void RunCheckpoints::tell_finished(const RunState& now, std::int64_t total_steps) {
  require_same_run(*finished_, now, total_steps, output_dir());
  stores_.drop_all();
  observer_.note(
      fmt::format("the run in {} is finished: {} steps; nothing to do", output_dir().string(), finished_->step));
}

void RunCheckpoints::go_on_from(const RunState& then, const std::string& name, const RunState& now) {
  for (const std::string& note : check_resumable(then, now, setup_.options.allow_numeric_change, name))
    observer_.note(note);
  if (then.step > total_steps_)
    throw UserError("max_steps: the run is to have {} steps, and has made {} already; give more", total_steps_,
                    then.step);
  const bool stays = setup_.options.resume_from_checkpoint == "auto" && branches_.is_last(then);
  const std::string branch = stays ? then.branch : begin_.branch;
  if (stays) {
    branches_.stay_on(then);
  } else {
    branches_.leave(then, branch);
  }
  begin_ = now;
  begin_.branch = branch;
  begin_.step = then.step;
  begin_.sequences = then.sequences;
  begin_.products = then.products;
  observer_.note(fmt::format("going on after step {}, from {}", begin_.step, name));
  exports_.tell_cut_short(cut_short_, begin_.step);
}

void RunCheckpoints::take_export(std::unique_ptr<PortableSource> source, const std::filesystem::path& folder,
                                 const RunState& now) {
  go_on_from(source->run(), folder.string(), now);
  found_export_ = std::move(source);
  found_.reset();
}

// The newest full export after `step` that the run has not left, and that can be read. Only then is all of it checked.
bool RunCheckpoints::take_newest_export(const RunState& now, std::int64_t step) {
  for (const ExportFolder& folder : exports_in(output_dir())) {
    if (!folder.full || folder.step <= step) continue;
    std::unique_ptr<PortableSource> source;
    try {
      if (!branches_.hold(read_run_state(folder.path))) throw UserError("{}", why_left);
      source = std::make_unique<PortableSource>(folder.path, setup_.model);
    } catch (const Error& error) {
      observer_.note(fmt::format("passed over {}: {}", folder.path.string(), error.what()));
      continue;
    }
    take_export(std::move(source), folder.path, now);
    return true;
  }
  return false;
}

// The newest of all that the run has not left. A commit that it has left serves where nothing else does.
void RunCheckpoints::find(const RunState& now, std::int64_t total_steps) {
  total_steps_ = total_steps;
  begin_ = now;
  begin_.branch = RunId::random().text();
  const std::string& wanted = setup_.options.resume_from_checkpoint;
  if (wanted == "none") return;
  branches_ = RunBranches(output_dir());
  stores_.open();
  if (wanted != "auto") {
    take_export(std::make_unique<PortableSource>(wanted, setup_.model), wanted, now);
    if (is_new_) write_branches();  // before store.json: killed while it loads, it must not be begun anew
    return;
  }
  found_ = stores_.newest_commit(branches_);
  if (found_ && branches_.never_left()) branches_.stay_on(found_->run);
  if (take_newest_export(now, found_ ? found_->run.step : -1)) return;
  if (!found_ && !branches_.never_left()) {
    found_ = stores_.newest_commit({});
    if (found_) observer_.note("nothing else serves: the run goes on from steps that it had left");
  }
  if (found_) return go_on_from(found_->run, fmt::format("the commit of step {}", found_->run.step), now);
  require_nothing_to_lose();
  if (stores_.any()) observer_.note(fmt::format("{} holds no commit yet; starting anew", output_dir().string()));
}

// Nothing serves: a run begins anew where nothing is there to go on from, and is refused elsewhere.
void RunCheckpoints::require_nothing_to_lose() const {
  if (stores_.lost()) {
    throw UserError("{}; to start anew, name another output_dir", *stores_.lost());
  }
  for (const ExportFolder& folder : exports_in(output_dir())) {
    if (!folder.full) continue;
    throw UserError(
        "resume_from_checkpoint: auto finds nothing in {} that serves, and the newest export there is {}; give its "
        "path to go on from it, or name another output_dir to start anew",
        output_dir().string(), folder.path.string());
  }
  if (!branches_.never_left()) {
    throw UserError(
        "the run in {} went on from a checkpoint of step {} and has left nothing to go on from; name another "
        "output_dir and give the path of that checkpoint again (`spillway checkpoint prune {} --keep 0` gives its disk "
        "space back)",
        output_dir().string(), branches_.began_after(), output_dir().string());
  }
}

void RunCheckpoints::write_branches() const { branches_.write(output_dir()); }

bool RunCheckpoints::adopts() const { return found_ && !pace_->never() && stores_.serves(*found_); }

void RunCheckpoints::make_store(const CommitSlots& needed, const std::vector<double>& shares) {
  try {
    slots_ = stores_.make({.directories = setup_.choices.spill_dirs,
                           .slot_bytes = setup_.planned.layout.page_bytes,
                           .slot_count = needed.slots,
                           .reserved_slots = needed.reserved,
                           .keep = true,
                           .calls = slow_calls_.get(),
                           .shares = shares});
  } catch (const DeviceError& error) {
    throw DeviceError("{}; of this, commits take a part: save_steps: -1 makes none", error.what());
  }
}

std::shared_ptr<SlotStore> RunCheckpoints::prepare_slots(const std::vector<double>& shares) {
  const Layout& layout = setup_.planned.layout;
  const TrainOptions& options = setup_.options;
  pace_.emplace(setup_.pace());
  observer_.note(pace_->describe());
  if (pace_->never()) return nullptr;
  if (options.flush_delay_ms > 0)
    slow_calls_ = make_slow_flush_calls(system_disk_calls(), std::chrono::milliseconds(options.flush_delay_ms));
  if (adopts()) adopted_ = snapshot_of(found_->manifest, *found_->slots, setup_.model.state(), layout);
  if (adopted_) {
    KnownStores::Store store = stores_.take(*found_);
    slots_ = std::move(store.slots);
    catalogue_ = std::move(store.catalogue);
  }
  CommitSpace space;  // an earlier run may have retained more, until the first commit of this one
  space.retained_commits = std::max(options.save_total_limit, std::ssize(catalogue_.commits));
  space.leases = options.export_steps > 0 ? 1 : 0;
  space.manifest_bytes =
      manifest_bytes_bound(setup_.model.state(), layout, std::ssize(json_of(begin_)) + run_text_room_bytes);
  space.slack_bytes = default_commit_slack_bytes(layout);
  const CommitSlots needed = commit_slots_for(layout, setup_.planned.plans, space);
  if (!adopted_) {
    make_store(needed, shares);
    return slots_;
  }
  slots_->set_shares(shares);
  slots_->grow(needed.slots, needed.reserved);
  return slots_;
}

void RunCheckpoints::adopt(Executor& executor) {
  if (adopted_) executor.adopt(*adopted_);
}

bool RunCheckpoints::restore(Executor& executor, const std::function<void()>& between) {
  if (adopted_) return true;
  if (found_) {
    CommitSource source(*found_->slots, found_->manifest, 1);
    restore_state(executor, setup_.planned.layout, setup_.model.state(), source, between);
  } else if (found_export_) {
    restore_state(executor, setup_.planned.layout, setup_.model.state(), *found_export_, between);
    found_export_ = nullptr;
  } else {
    return false;
  }
  return true;
}

void RunCheckpoints::abandon() {
  if (is_new_) RunBranches().write(output_dir());
  if (!slots_ || adopted_) return;
  slots_ = nullptr;
  stores_.drop_own();
}

void RunCheckpoints::start(Executor& executor) {
  executor_ = &executor;
  training_thread_ = std::this_thread::get_id();
  const bool export_is_missing = found_ && exports_.is_missing(begin_, branches_);
  if (slots_) start_commits();
  if (export_is_missing) make_missing_export();
}

void RunCheckpoints::start_commits() {
  CommitterOptions options;
  options.retained_commits = setup_.options.save_total_limit;
  options.on_durable = [this](const CommitReport& report) {
    commit_seconds_ = report.seconds;
    durable_step_ = report.entry.step;
    watch_.committed(report.entry.step);
    note_stage(EventSource::commit, report.entry.step, CommitStage::durable, report.entry.manifest_bytes);
  };
  committer_ = std::make_unique<Committer>(setup_.model.state(), setup_.planned.layout, *slots_, catalogue_, options);
  if (found_ && found_->slots == slots_) {
    if (!catalogue_.commits.empty() && catalogue_.commits.back().entry.generation > found_->entry.generation)
      committer_->forget_after(found_->entry.generation);
    durable_step_ = found_->run.step;
  }
  found_.reset();
}

// From the commit, in the background, where the run goes on in its slots; they are read into others otherwise, and
// nothing is committed yet.
void RunCheckpoints::make_missing_export() {
  observer_.note(fmt::format("the export of step {} is not there; making it", begin_.step));
  if (!committer_ || durable_step_ != begin_.step) return exports_.write(*executor_, begin_);
  exports_.expect(begin_);
  exports_.follow(slots_, *committer_, durable_step_);
}

// --- During the run ---

// Commits that are not durable: reached or not, wanted or not.
int RunCheckpoints::pending() const {
  const std::lock_guard lock(expected_mutex_);
  const auto wanted =
      std::count_if(expected_.begin(), expected_.end(), [](const Expected& step) { return step.facts.has_value(); });
  return static_cast<int>(wanted) + committer_->pending();
}

bool RunCheckpoints::is_due(const RunState& after, bool is_dear) {
  if (exports_.is_due(after.step)) {  // of this very step, so what is under way is waited for
    executor_->drain();
    finish_exports();
    exports_.expect(after);
    return true;
  }
  if (exports_.waits()) {
    pace_->pass_over(after.step);
    return false;
  }
  const bool busy = pending() >= Committer::most_pending;
  const bool due = pace_->is_due(after.step, now_seconds(), busy, is_dear);
  return due || (commit_wanted_ && !busy);
}

bool RunCheckpoints::begin_step(const RunState& after, bool commit_wanted, bool is_dear) {
  next_.reset();
  if (!committer_) return false;
  commit_wanted_ = commit_wanted_ || commit_wanted;
  if (!is_due(after, is_dear)) return false;
  pace_->begun(now_seconds());
  commit_wanted_ = false;
  next_ = {after.step, json_of(after)};
  return true;
}

void RunCheckpoints::expect_commit(bool wanted) {
  if (!committer_) return;
  SPILLWAY_CHECK(!wanted || next_, "the step under way is not to commit");
  const std::lock_guard lock(expected_mutex_);
  expected_.push_back({wanted ? std::exchange(next_, std::nullopt) : std::nullopt, !wanted});
}

void RunCheckpoints::reached(SlotSnapshot snapshot) {
  const std::lock_guard lock(expected_mutex_);
  const auto step = std::find_if(expected_.begin(), expected_.end(), [](const Expected& e) { return !e.snapshot; });
  SPILLWAY_CHECK(step != expected_.end(), "a commit that no step was to make");
  const auto source = std::this_thread::get_id() == training_thread_ ? EventSource::compute : EventSource::disk;
  if (step->facts) note_stage(source, step->facts->step, CommitStage::snapshot, 0);
  step->snapshot = std::move(snapshot);
  submit_ready();
}

// Never waits: no more than the committer takes are begun.
void RunCheckpoints::submit_ready() {
  for (; !expected_.empty() && expected_.front().good && expected_.front().snapshot; expected_.pop_front()) {
    Expected& step = expected_.front();
    if (!step.facts) {
      slots_->release(step.snapshot->slots);
      continue;
    }
    try {
      committer_->submit({std::move(*step.snapshot), std::move(*step.facts)});
    } catch (const Error&) {  // the committer has failed: the training thread hears of it from Committer::check
    }
  }
}

void RunCheckpoints::after_step(const RunState& state) {
  if (!committer_) {
    if (exports_.is_due(state.step)) exports_.write(*executor_, state);
    return;
  }
  {
    const std::lock_guard lock(expected_mutex_);
    for (Expected& commit : expected_) commit.good = true;
    submit_ready();
  }
  follow_commits();
}

void RunCheckpoints::note_stage(EventSource source, std::int64_t step, CommitStage stage, std::int64_t bytes) {
  if (EventRecorder* const recorder = watch_.recorder(); recorder != nullptr)
    recorder->commit(source, static_cast<std::int32_t>(step), stage, bytes);
}

// Nothing else is under way.
void RunCheckpoints::commit_now(const RunState& state) {
  executor_->write_residents();
  committer_->submit({executor_->snapshot(), {state.step, json_of(state)}});
}

void RunCheckpoints::follow_commits() {
  committer_->check();
  pace_->durable(commit_seconds_);
  if (durable_step_ >= 0) stores_.drop_older();
  exports_.follow(slots_, *committer_, durable_step_);
  if (pace_->postponed() == 0 || told_postponed_ > 0) return;
  told_postponed_ = pace_->postponed();
  observer_.note("commits are spaced out: the disk makes one durable more slowly than a step takes");
}

// The executor is drained. An export that waits for its commit begins before it is waited for: a later commit would
// drop what it reads.
void RunCheckpoints::finish_exports() {
  if (!committer_) return;
  do {
    committer_->wait();
    follow_commits();
    exports_.wait();
    exports_.follow(slots_, *committer_, durable_step_);
  } while (exports_.under_way());
}

// --- At the end ---

std::string RunCheckpoints::stop(const RunState& state) {
  if (state.step == 0) return "stopped before the first step";
  if (!committer_) return stop_without_commits(state.step);
  finish_exports();
  if (durable_step_ != state.step) commit_now(state);
  committer_->wait();
  follow_commits();
  return fmt::format("stopped after step {}, which is committed; {} goes on from there", state.step, next_command());
}

// The words for the command that goes on. As it was given it may ask for something else than the newest.
std::string RunCheckpoints::next_command() const {
  return setup_.options.resume_from_checkpoint == "auto" ? "the same command"
                                                         : "the same command with resume_from_checkpoint: auto";
}

std::string RunCheckpoints::stop_without_commits(std::int64_t step) const {
  std::int64_t kept = found_ ? found_->run.step : 0;  // by an earlier run, with another save_steps
  for (const ExportFolder& folder : exports_in(output_dir())) {
    if (folder.full && folder.step <= step && branches_.hold_export(folder.path)) kept = std::max(kept, folder.step);
  }
  const std::string stopped = fmt::format("stopped after step {}; nothing is committed, since save_steps is -1", step);
  if (kept > 0) return fmt::format("{}: {} goes on from step {}", stopped, next_command(), kept);
  if (stores_.any()) return stopped + ", and no export of it is there to go on from";
  return fmt::format("{}: to start anew name another output_dir, or remove {}", stopped, output_dir().string());
}

void RunCheckpoints::finish() {
  executor_ = nullptr;
  committer_ = nullptr;
  slots_ = nullptr;
  found_.reset();  // where nothing is committed it is still there
  stores_.drop_all();
}

}  // namespace spillway
