// The executor with an accelerator that starts many ops as one: the sequences of steps that move nothing.
#include <set>

#include "executor/executor.h"
#include "executor/lanes.h"

namespace spillway {
namespace {

// Of all plans together: what a recorded op takes is counted nowhere, and is to be little beside what a device's driver
// is given.
constexpr std::size_t most_recorded_ops = 16'384;

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
  if (lane.empty()) return {};
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
  std::size_t recorded = 0;
  for (const PlanWaits& waits : plans_) {
    sequences_.emplace_back();
    if (!options_.replay || options_.poison) continue;  // pages are filled where stays begin, between ops
    const Plan& plan = waits.plan();
    std::vector<std::size_t> begins = sequences_of(plan, *programs[static_cast<std::size_t>(plan.program)]);
    if (begins.empty() || recorded + begins.back() > most_recorded_ops) continue;
    recorded += begins.back();
    sequences_.back() = std::move(begins);
  }
}

// What earlier plans left under way ends first, then all stays begin. The ops of a sequence end together; outputs are
// fetched at the end, since that waits for all that was started.
void Executor::start_sequences(const Following& following, RunReport& report) {
  const Plan& plan = following.waits->plan();
  const std::span<const InstrId> lane = plan.lanes[static_cast<std::size_t>(LaneId::compute)];
  const auto plan_number = static_cast<std::size_t>(following.waits - plans_.data());
  const std::vector<std::size_t>& begins = sequences_[plan_number];
  LaneClock clock{};
  for (const InstrId id : lane) clock = join(clock, following.wait_of(id));
  clock[static_cast<std::size_t>(LaneId::compute)] = 0;
  wait_until(following, lane.front(), clock, report);
  for (const InstrId id : lane) {
    for (const StayId stay : plan.instrs[index_of(id)].begins) attach_stay(following, id, stay);
  }
  std::deque<std::int64_t> marks;
  std::size_t ended = 0;  // sequences
  const auto tell_of_begin = [&](InstrId id) {
    const Instr& instr = plan.instrs[index_of(id)];
    for (const StayId stay : instr.begins) events_.stay_begin(following, id, stay);
    events_.op_begin(following, id, instr.op);
  };
  const auto end_first = [&] {
    accelerator_->wait(marks.front());
    marks.pop_front();
    for (std::size_t i = begins[ended]; i < begins[ended + 1]; ++i) {
      events_.op_end(following, lane[i], plan.instrs[index_of(lane[i])].op);
      end_instr(LaneId::compute);
      if (i + 1 < lane.size()) tell_of_begin(lane[i + 1]);
    }
    ++ended;
  };
  tell_of_begin(lane.front());
  for (std::size_t s = 0; s + 1 < begins.size(); ++s) {
    if (std::ssize(marks) == Accelerator::most_marks) end_first();
    start_sequence(plan, static_cast<std::int64_t>((plan_number << 32) + s),
                   lane.subspan(begins[s], begins[s + 1] - begins[s]));
    marks.push_back(accelerator_->mark());
  }
  while (!marks.empty()) end_first();
  const BoundProgram& program = *programs_[static_cast<std::size_t>(plan.program)];
  for (const InstrId id : lane) get_values(program, plan.instrs[index_of(id)].op);
}

void Executor::start_sequence(const Plan& plan, std::int64_t number, std::span<const InstrId> instrs) {
  if (accelerator_->start_sequence(number)) return;
  const auto start_all = [&] {
    const BoundProgram& program = *programs_[static_cast<std::size_t>(plan.program)];
    for (const InstrId id : instrs) start_op(program, plan.instrs[index_of(id)].op);
  };
  accelerator_->begin_sequence(number);
  start_all();
  if (!accelerator_->end_sequence()) start_all();
}

}  // namespace spillway
