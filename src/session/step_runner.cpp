#include "session/step_runner.h"

#include <cmath>
#include <cstring>
#include <utility>

namespace spillway {
namespace {

float read_float(const Executor& executor, std::int32_t program, const Operand& operand) {
  float value = 0;
  std::memcpy(&value, executor.host_value(program, operand), sizeof value);
  return value;
}

void set_scalars(Executor& executor, std::int32_t program, const Operand& operand, const AdamwScalars& scalars) {
  std::memcpy(executor.host_value(program, operand), &scalars, sizeof scalars);
}

void add(RunReport& sum, const RunReport& report) {
  sum.traffic.read_bytes += report.traffic.read_bytes;
  sum.traffic.write_bytes += report.traffic.write_bytes;
  for (std::size_t tag = 0; tag < memory_tag_count; ++tag) {
    sum.traffic_by_tag[tag].read_bytes += report.traffic_by_tag[tag].read_bytes;
    sum.traffic_by_tag[tag].write_bytes += report.traffic_by_tag[tag].write_bytes;
  }
  sum.up_bytes += report.up_bytes;
  sum.down_bytes += report.down_bytes;
  sum.seconds += report.seconds;
  sum.stalled_seconds += report.stalled_seconds;
}

}  // namespace

double read_double(const Executor& executor, std::int32_t program, const Operand& operand) {
  double value = 0;
  std::memcpy(&value, executor.host_value(program, operand), sizeof value);
  return value;
}

ClipPolicy policy_of(const TrainingSetup& setup) {
  return setup.steps.go_both_ways() ? ClipPolicy(setup.clip_costs) : ClipPolicy(setup.steps.usual().way);
}

StepRunner::StepRunner(const TrainingSetup& setup, Executor& executor, const Windows* windows,
                       ExpectCommit expect_commit)
    : programs_(setup.steps),
      planned_(setup.planned),
      shape_(setup.shape),
      executor_(executor),
      policy_(policy_of(setup)),
      expect_commit_(std::move(expect_commit)),
      speculated_(speculated_bundles(setup.steps.speculated, setup.model, setup.planned.layout)) {
  for (std::size_t s = 0; s < programs_.steps.size(); ++s) {
    const TrainingProgram& step = programs_.steps[s];
    const auto program = static_cast<std::int32_t>(s);
    set_frequencies(executor, program, step.inverse_frequencies, setup.config.model);
    set_input(executor, program, step.max_norm, static_cast<float>(setup.options.max_grad_norm));
    if (windows != nullptr) feeds_.emplace_back(executor, program, step.micro_batches, shape_, *windows);
  }
}

StepRunner::Outcome StepRunner::run(const Step& step) {
  Outcome outcome;
  ran_.clear();
  outcome.way = policy_.way();
  const bool defers = outcome.way == UpdateWay::deferred;
  if (!defers && pending_) outcome.report = complete(false);
  const std::int32_t program = programs_.index_of_step(defers && !pending_ ? UpdateWay::keep : outcome.way);
  outcome.plan = planned_.plan_of(program, step.commits && !defers);
  const TrainingProgram& recorded = programs_.steps[static_cast<std::size_t>(program)];
  outcome.targets =
      feeds_[static_cast<std::size_t>(program)].fill(step.first_sequence, step.first_sequence + sequences());
  set_input(executor_, program, recorded.scale, static_cast<float>(1.0 / static_cast<double>(outcome.targets)));
  set_scalars(executor_, program, recorded.adamw, step.scalars);
  if (pending_) {
    set_scalars(executor_, program, recorded.adamw_before, pending_->scalars);
    set_input(executor_, program, recorded.factor_before, pending_->factor);
  }
  if (outcome.way == UpdateWay::speculative) {
    executor_.speculate(speculated_);
  } else {
    expect_commit_of(outcome.plan, step.commits);
  }
  add(outcome.report, run_plan(outcome.plan));
  outcome.loss = read_double(executor_, program, recorded.loss) / static_cast<double>(outcome.targets);
  outcome.norm = read_double(executor_, program, recorded.norm);
  const float factor = read_float(executor_, program, recorded.factor);
  outcome.clipped = factor != 1.0F;
  if (outcome.way == UpdateWay::speculative) settle_speculation(outcome, step, factor);
  if (defers) leave_update(outcome, step, factor);
  policy_.note(outcome.clipped);
  outcome.plans = ran_;
  return outcome;
}

// Updates made with a factor of 1 stand if that is what the factor came out as; otherwise they are made again from the
// versions before, and what the run would have committed is not.
void StepRunner::settle_speculation(Outcome& outcome, const Step& step, float factor) {
  if (!outcome.clipped) {
    expect_commit_of(outcome.plan, step.commits);
    executor_.accept();
    return;
  }
  executor_.revert();
  outcome.taken_back = true;
  if (!std::isfinite(outcome.norm)) return;
  const PendingUpdate again{step.number, step.learning_rate, step.scalars, factor};
  add(outcome.report, update(programs_.index_of_redo(), *programs_.redo, again, step.commits));
}

// A commit is of a step whose update is complete.
void StepRunner::leave_update(Outcome& outcome, const Step& step, float factor) {
  pending_ = {step.number, step.learning_rate, step.scalars, factor};
  if (step.commits && std::isfinite(outcome.norm)) add(outcome.report, complete(true));
}

void StepRunner::flush() {
  if (pending_) complete(false);
}

RunReport StepRunner::complete(bool commits) {
  const RunReport report = update(programs_.index_of_flush(), *programs_.flush, *pending_, commits);
  pending_.reset();
  return report;
}

RunReport StepRunner::update(std::int32_t program, const UpdateProgram& update, const PendingUpdate& pending,
                             bool commits) {
  set_scalars(executor_, program, update.adamw, pending.scalars);
  set_input(executor_, program, update.factor, pending.factor);
  const std::int32_t plan = planned_.plan_of(program, commits);
  expect_commit_of(plan, commits);
  return run_plan(plan);
}

void StepRunner::expect_commit_of(std::int32_t plan, bool wanted) {
  if (planned_.commits(plan)) expect_commit_(wanted);
}

RunReport StepRunner::run_plan(std::int32_t number) {
  const Plan& plan = planned_.plans[static_cast<std::size_t>(number)];
  ran_.push_back(number);
  if (!executor_.is_ready_for(plan)) executor_.settle(plan, plan.entry);
  return executor_.run(plan);
}

}  // namespace spillway
