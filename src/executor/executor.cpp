#include "executor/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "executor/lanes.h"
#include "ops/matmul/matmul.h"

namespace spillway {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

constexpr std::byte poison{0xff};  // NaN in every floating-point type

}  // namespace

Executor::Executor(const Layout& layout, std::span<const Program* const> programs, std::span<const Plan> plans,
                   KernelCache& kernels, const ExecutorOptions& options)
    : layout_(layout), options_(options), lanes_(std::make_unique<Lanes>()) {
  PagePoolOptions pool;
  pool.page_bytes = layout.page_bytes;
  pool.page_count = plans.front().pages;
  pool.address_bytes = layout.address_bytes;
  pool.threads = options.threads;
  pool.huge_pages = options.huge_pages;
  pool_ = std::make_unique<HostPagePool>(pool);
  io_ = make_io_engine(options.io);
  if (options.wrap_io) io_ = options.wrap_io(std::move(io_));
  if (options.slots) {
    slots_ = options.slots;
    slots_->attach(*io_);
  } else if (const std::int64_t slots = disk_slots_for(layout, plans); slots > 0) {
    slots_ = std::make_shared<SlotStore>(SlotStoreOptions{options.spill_dirs, layout.page_bytes, slots}, *io_);
  }
  for (std::size_t p = 0; p < programs.size(); ++p) {
    programs_.push_back(std::make_unique<BoundProgram>(*programs[p], layout.programs[p], layout, *pool_, kernels));
  }
  scratch_bytes_ = round_up(kernels.scratch_bytes(), 4096);
  scratch_ = AlignedBytes(scratch_bytes_ * options.threads);
  threads_ = std::make_unique<ThreadPool>(options.threads, [](int) { prepare_matmul_thread(); });
  bundle_slots_.resize(layout.bundles.size());
  replaced_slots_.resize(layout.bundles.size());
  for (const Plan& plan : plans) prepare(plan);
  lanes_->thread = std::thread([this] { disk_thread(); });
}

Executor::~Executor() {
  {
    const std::lock_guard lock(lanes_->mutex);
    lanes_->stop = true;
  }
  lanes_->changed.notify_all();
  io_->wake();
  lanes_->thread.join();
}

void Executor::prepare(const Plan& plan) {
  Prepared prepared;
  prepared.plan = &plan;
  prepared.position.resize(plan.instrs.size());
  for (const auto& lane : plan.lanes) {
    for (std::size_t i = 0; i < lane.size(); ++i) prepared.position[index_of(lane[i])] = static_cast<std::int32_t>(i);
  }
  for (const Instr& instr : plan.instrs) {
    Clock clock{};
    for (const InstrId wait : instr.after) {
      const auto lane = static_cast<std::size_t>(plan.instrs[index_of(wait)].lane);
      clock[lane] = std::max(clock[lane], prepared.position[index_of(wait)] + 1);
    }
    prepared.waits.push_back(clock);
  }
  prepared_.push_back(std::move(prepared));
}

std::byte* Executor::host_value(std::int32_t program, const Operand& operand) const {
  std::byte* data = programs_[static_cast<std::size_t>(program)]->host().data(operand.first);
  SPILLWAY_CHECK(data != nullptr, "value %{} is not the host's", index_of(operand.first));
  return data;
}

std::string Executor::describe_io() const {
  return slots_ ? fmt::format("{}; {}", io_->describe(), slots_->describe()) : "nothing is spilled";
}

// --- One run ---

RunReport Executor::run(const Plan& plan) {
  const auto found =
      std::find_if(prepared_.begin(), prepared_.end(), [&](const Prepared& p) { return p.plan == &plan; });
  SPILLWAY_CHECK(found != prepared_.end(), "the plan was not given to the executor");
  const auto start = SteadyClock::now();
  end_visit(0);
  enter(plan);
  for (auto& done : lanes_->done) done = 0;
  lanes_->failed = false;
  lanes_->wake_at = never;
  lanes_->next = {};
  lanes_->in_flight = {};
  lanes_->traffic = {};
  lanes_->complete.assign(plan.instrs.size(), false);
  parts_left_.assign(plan.instrs.size(), 0);
  bytes_left_.assign(plan.instrs.size(), 0);
  {
    const std::lock_guard lock(lanes_->mutex);
    lanes_->failure = nullptr;
    lanes_->job = &*found;
  }
  lanes_->changed.notify_all();

  RunReport report;
  try {
    run_compute(*found, report);
  } catch (const std::exception&) {
    fail(std::current_exception());  // the disk thread stops; the failure is thrown below
  }
  const auto computed = SteadyClock::now();
  {
    std::unique_lock lock(lanes_->mutex);
    lanes_->changed.wait(lock, [&] { return lanes_->job == nullptr; });
  }
  throw_failure();
  leave(plan);
  report.traffic = lanes_->traffic;
  report.stalled_seconds += seconds_since(computed);
  report.seconds = seconds_since(start);
  return report;
}

// Maps the plan's pages to physical ones: those of its entry lie where the last plan left them, the others are any.
void Executor::enter(const Plan& plan) {
  std::vector<bool> used(static_cast<std::size_t>(plan.pages), false);
  physical_.assign(static_cast<std::size_t>(plan.pages), PageId::none);
  SPILLWAY_CHECK(plan.entry.stays.size() == in_memory_.size(), "{} bundles in memory, the plan's entry has {}",
                 in_memory_.size(), plan.entry.stays.size());
  for (const StayId id : plan.entry.stays) {
    const Stay& stay = plan.stays[index_of(id)];
    const auto held = in_memory_.find(stay.bundle);
    SPILLWAY_CHECK(held != in_memory_.end(), "bundle {} is not in memory", index_of(stay.bundle));
    for (std::size_t i = 0; i < stay.pages.size(); ++i) {
      physical_[index_of(stay.pages[i])] = held->second[i];
      used[index_of(held->second[i])] = true;
    }
  }
  std::size_t next = 0;
  for (PageId& page : physical_) {
    if (page != PageId::none) continue;
    while (used[next]) ++next;
    page = static_cast<PageId>(next++);
  }
}

void Executor::leave(const Plan& plan) {
  in_memory_.clear();
  for (const StayId id : plan.exit.stays) {
    const Stay& stay = plan.stays[index_of(id)];
    for (const PageId page : stay.pages) in_memory_[stay.bundle].push_back(physical_[index_of(page)]);
  }
}

void Executor::run_compute(const Prepared& prepared, RunReport& report) {
  const Plan& plan = *prepared.plan;
  const BoundProgram& program = *programs_[static_cast<std::size_t>(plan.program)];
  Delays delays(options_.delay_seed);
  std::atomic<std::int32_t>& done = lanes_->done[static_cast<std::size_t>(LaneId::compute)];
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(LaneId::compute)]) {
    const Instr& instr = plan.instrs[index_of(id)];
    wait_for(prepared.waits[index_of(id)], report);
    delays.maybe_sleep();
    for (const StayId stay : instr.begins) begin_stay(plan, stay, options_.poison);
    run_op(program, instr.op);
    const std::int32_t count = done.fetch_add(1) + 1;
    if (count >= lanes_->wake_at.load()) {
      lanes_->wake_at = never;
      io_->wake();
    }
  }
}

void Executor::run_op(const BoundProgram& program, OpId op) {
  const BoundProgram::Call call = program.call(op);
  threads_->run(call.kernel->tasks(), [&](int thread, std::int64_t task) {
    std::byte* scratch = scratch_.data() + thread * scratch_bytes_;
    call.kernel->run(task, {call.reads, call.writes, {scratch, static_cast<std::size_t>(scratch_bytes_)}});
    check_float_mode();
  });
}

void Executor::begin_stay(const Plan& plan, StayId id, bool fill) {
  const Stay& stay = plan.stays[index_of(id)];
  const std::int64_t address = layout_.bundles[index_of(stay.bundle)].address;
  for (std::size_t i = 0; i < stay.pages.size(); ++i) {
    const PageId page = physical_[index_of(stay.pages[i])];
    pool_->attach(page, address + static_cast<std::int64_t>(i) * layout_.page_bytes);
    if (fill) pool_->fill(page, poison);
  }
}

bool Executor::reached(const Clock& clock) const {
  for (std::size_t lane = 0; lane < lane_count; ++lane) {
    if (lanes_->done[lane].load() < clock[lane]) return false;
  }
  return true;
}

void Executor::wait_for(const Clock& clock, RunReport& report) {
  if (reached(clock)) {
    if (lanes_->failed.load()) throw_failure();
    return;
  }
  const auto start = SteadyClock::now();
  for (;;) {
    const std::uint32_t seen = lanes_->events.load();
    if (lanes_->failed.load()) throw_failure();
    if (reached(clock)) break;
    lanes_->events.wait(seen);
  }
  report.stalled_seconds += seconds_since(start);
}

void Executor::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(lanes_->mutex);
    if (!lanes_->failure) lanes_->failure = std::move(failure);
  }
  lanes_->failed = true;
  lanes_->signal();
  io_->wake();
}

void Executor::throw_failure() {
  const std::lock_guard lock(lanes_->mutex);
  if (lanes_->failure) std::rethrow_exception(lanes_->failure);
}

}  // namespace spillway
