// The host's processor beside a device: a thread that runs the ops of its lane, in order, in the host's pages.
#include "base/error.h"
#include "executor/executor.h"
#include "executor/lanes.h"

namespace spillway {

void Executor::update_thread() {
  set_float_mode();
  OpPace pace(options_.update.host_parameters_per_second);
  serve(LaneId::update, [&](const Following& following) { run_updates(following, pace); });
}

// Those of one plan; stops when any lane has failed.
void Executor::run_updates(const Following& following, OpPace& pace) {
  const Plan& plan = following.waits->plan();
  const BoundProgram& program = *programs_[static_cast<std::size_t>(plan.program)];
  Delays delays(options_.delay_seed == 0 ? 0 : options_.delay_seed * 69069U + 5);
  BoundProgram::Call call;
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(LaneId::update)]) {
    if (!wait_in_lane(following.wait_of(id))) return;
    delays.maybe_sleep();
    const Instr& instr = plan.instrs[index_of(id)];
    for (const StayId stay : instr.begins) begin_stay(following, id, stay);
    program.prepare_on_host(instr.op, data_[static_cast<std::size_t>(MemoryId::host)], call);
    pace.run(static_cast<double>(program.updated_by(instr.op)),
             [&] { run_tasks(*update_threads_, *call.kernel, call.reads, call.writes, {}); });
    end_instr(LaneId::update);
  }
}

// Inputs and outputs are the caller's again when both processors are done. A plan of updates alone may have no other
// op.
void Executor::await_updates(const Following& following, RunReport& report) {
  const auto lane = static_cast<std::size_t>(LaneId::update);
  const auto& lanes = following.waits->plan().lanes;
  if (lanes[lane].empty()) return;
  LaneClock clock{};
  clock[lane] = following.base[lane] + std::ssize(lanes[lane]);
  const auto& computed = lanes[static_cast<std::size_t>(LaneId::compute)];
  wait_until(following, computed.empty() ? lanes[lane].back() : computed.back(), clock, report);
}

}  // namespace spillway
