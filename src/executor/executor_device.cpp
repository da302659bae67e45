// The executor with an accelerator: ops that are started and end later, its copies of inputs and outputs, and copies
// over its link.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "executor/executor.h"
#include "executor/lanes.h"

namespace spillway {

// Returns where its inputs and outputs are.
std::byte* Executor::reserve_on_accelerator(const PagePoolOptions& pool, std::span<const Program* const> programs) {
  AcceleratorMemory memory{pool.page_bytes, pool.page_count, pool.address_bytes, 0};
  for (const Program* program : programs) memory.value_bytes += HostValues::bytes_of(*program);
  options_.accelerator->reserve(memory, *pool_);
  // It gives all back before the host's pages, which it knows, are gone, also when the constructor fails.
  accelerator_ = std::shared_ptr<Accelerator>(options_.accelerator.get(),
                                              [device = options_.accelerator](Accelerator*) { device->give_back(); });
  return accelerator_->values();
}

std::int64_t Executor::page_count(MemoryId memory) const {
  return memory == MemoryId::device && accelerator_ ? plans_.front().plan().device_pages : pool_of(memory).page_count();
}

void Executor::start_ops(const Following& following, RunReport& report) {
  const Plan& plan = following.waits->plan();
  put_values(*programs_[static_cast<std::size_t>(plan.program)]);
  const auto number = static_cast<std::size_t>(following.waits - plans_.data());
  sequences_[number].empty() ? start_one_by_one(following, report) : start_sequences(following, report);
}

void Executor::start_op(const BoundProgram& program, OpId op) {
  program.prepare(op, data_of_ops(), call_);
  const BoundProgram::Call& call = call_;
  call.kernel->run(0, {call.reads, call.writes, {}});
}

// Ops are started in order, ahead of the device as far as waits for other lanes allow; a wait for the compute lane
// itself is kept by its order. Whoever this lane waits for may wait for ops that were started, so those end first.
void Executor::start_one_by_one(const Following& following, RunReport& report) {
  const Plan& plan = following.waits->plan();
  const BoundProgram& program = *programs_[static_cast<std::size_t>(plan.program)];
  Delays delays(options_.delay_seed);
  std::deque<Started> started;
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(LaneId::compute)]) {
    while (!started.empty() &&
           (std::ssize(started) == Accelerator::most_marks || accelerator_->is_done(started.front().mark))) {
      end_op(following, started);
    }
    LaneClock clock = following.wait_of(id);
    clock[static_cast<std::size_t>(LaneId::compute)] = 0;
    if (!reached(clock)) {
      while (!started.empty()) end_op(following, started);
    }
    wait_until(following, id, clock, report);
    delays.maybe_sleep();
    const Instr& instr = plan.instrs[index_of(id)];
    for (const StayId stay : instr.begins) begin_stay(following, id, stay);
    start_op(program, instr.op);
    if (started.empty()) events_.op_begin(following, id, instr.op);
    started.push_back({id, instr.op, accelerator_->mark()});
  }
  while (!started.empty()) end_op(following, started);
}

void Executor::end_op(const Following& following, std::deque<Started>& started) {
  const Started first = started.front();
  accelerator_->wait(first.mark);
  get_values(*programs_[static_cast<std::size_t>(following.waits->plan().program)], first.op);
  events_.op_end(following, first.instr, first.op);
  started.pop_front();
  end_instr(LaneId::compute);
  if (!started.empty()) events_.op_begin(following, started.front().instr, started.front().op);
}

void Executor::put_values(const BoundProgram& program) {
  const std::span<std::byte> all = program.host().all();
  accelerator_->put(program.values(), all.data(), std::ssize(all));
}

// Outputs that the op has written.
void Executor::get_values(const BoundProgram& program, OpId op) {
  for (const Operand& write : program.program().ops[index_of(op)].writes) {
    std::byte* const host = program.host().data(write.first);
    if (host == nullptr) continue;
    const std::int64_t offset = host - program.host().all().data();
    accelerator_->get(host, program.values() + offset, program.program().type_of(write).bytes());
  }
}

std::vector<PageId> Executor::host_pages_of(const Following& following, const Instr& instr) const {
  std::vector<PageId> pages;
  for (const StayId id : instr.stays) {
    const Stay& stay = following.waits->plan().stays[index_of(id)];
    if (stay.memory != MemoryId::host) continue;
    for (const PageId page : stay.pages) pages.push_back(following.physical[index_of(page)]);
  }
  return pages;
}

// A bundle that has pages in both memories. Returns when it is there.
void Executor::move_over_link(LaneId lane, BundleId bundle, std::span<const PageId> host_pages) {
  std::byte* const device = data(bundle, MemoryId::device);
  const std::int64_t bytes = layout_.bundles[index_of(bundle)].bytes;
  if (!accelerator_) {
    lane == LaneId::up ? std::memcpy(device, data(bundle), static_cast<std::size_t>(bytes))
                       : std::memcpy(data(bundle), device, static_cast<std::size_t>(bytes));
    return;
  }
  const HostBundle host{data(bundle), host_pages, bytes};
  lane == LaneId::up ? accelerator_->copy_up(device, host) : accelerator_->copy_down(host, device);
}

}  // namespace spillway
