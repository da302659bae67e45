// The executor with an accelerator that starts many ops as one: the sequences of steps that move nothing.
#include <set>

#include "executor/executor.h"
#include "executor/lanes.h"

namespace spillway {
namespace {

// Where nothing moves, ops are the same in every step, operands included, and wait for nothing but what earlier plans
// left under way. They are sequences then, one for each stretch of a phase, so that phases can be told apart. A bundle
// that begins twice is left out, since all stays begin before the first op.
std::vector<std::size_t> sequences_of(const Plan& plan, const Program& program) {
  for (std::size_t lane = 0; lane < lane_count; ++lane) {
    if (lane != static_cast<std::size_t>(LaneId::compute) && !plan.lanes[lane].empty()) return {};
  }
  std::set<BundleId> bundles;
  for (const Stay& stay : plan.stays) {
    if (!bundles.insert(stay.bundle).second) return {};
  }
  std::vector<std::size_t> begins;
  const auto& lane = plan.lanes[static_cast<std::size_t>(LaneId::compute)];
  for (std::size_t i = 0; i < lane.size(); ++i) {
    const auto phase_of = [&](std::size_t at) {
      return program.ops[index_of(plan.instrs[index_of(lane[at])].op)].label.phase;
    };
    if (i == 0 || phase_of(i) != phase_of(i - 1)) begins.push_back(i);
  }
  begins.push_back(lane.size());
  return begins;
}

}  // namespace

void Executor::find_sequences(std::span<const Program* const> programs) {
  for (const PlanWaits& waits : plans_) {
    const bool may = options_.replay && !options_.poison;  // pages are filled where stays begin, between ops
    const Plan& plan = waits.plan();
    sequences_.push_back(may ? sequences_of(plan, *programs[static_cast<std::size_t>(plan.program)])
                             : std::vector<std::size_t>());
  }
}

// What earlier plans left under way ends first, then all stays begin. The ops of a sequence end together.
void Executor::start_sequences(const Following& following, RunReport& report) {
  const Plan& plan = following.waits->plan();
  const BoundProgram& program = *programs_[static_cast<std::size_t>(plan.program)];
  const auto& lane = plan.lanes[static_cast<std::size_t>(LaneId::compute)];
  const auto plan_number = static_cast<std::size_t>(following.waits - plans_.data());
  const std::vector<std::size_t>& begins = sequences_[plan_number];
  LaneClock clock{};
  for (const InstrId id : lane) clock = join(clock, following.wait_of(id));
  clock[static_cast<std::size_t>(LaneId::compute)] = 0;
  wait_until(following, lane.front(), clock, report);
  for (const InstrId id : lane) {
    for (const StayId stay : plan.instrs[index_of(id)].begins) begin_stay(following, id, stay);
  }
  std::deque<Started> started;
  std::deque<std::int64_t> marks;
  for (std::size_t s = 0; s + 1 < begins.size(); ++s) {
    if (std::ssize(marks) == Accelerator::most_marks) {
      while (!started.empty() && started.front().mark == marks.front()) end_op(following, started);
      marks.pop_front();
    }
    const auto number = static_cast<std::int64_t>((plan_number << 32) + s);
    if (!accelerator_->start_sequence(number)) {
      accelerator_->begin_sequence(number);
      for (std::size_t i = begins[s]; i < begins[s + 1]; ++i) start_op(program, plan.instrs[index_of(lane[i])].op);
      accelerator_->end_sequence();
    }
    marks.push_back(accelerator_->mark());
    for (std::size_t i = begins[s]; i < begins[s + 1]; ++i) {
      const OpId op = plan.instrs[index_of(lane[i])].op;
      if (started.empty()) events_.op_begin(following, lane[i], op);
      started.push_back({lane[i], op, marks.back()});
    }
  }
  while (!started.empty()) end_op(following, started);
}

}  // namespace spillway
