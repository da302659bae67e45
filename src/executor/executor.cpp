#include "executor/executor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/steady_clock.h"
#include "executor/lanes.h"
#include "ops/matmul/matmul.h"
#include "plan/flat.h"

namespace spillway {
namespace {

constexpr std::byte poison{0xff};  // NaN in every floating-point type

}  // namespace

Executor::Executor(const Layout& layout, std::span<const Program* const> programs, std::span<const Plan> plans,
                   KernelCache& kernels, const ExecutorOptions& options)
    : layout_(layout),
      options_(options),
      compute_pace_(plans.front().device_pages > 0 ? options.update.device_parameters_per_second : 0),
      events_(options.recorder, layout, plans_),
      trail_(layout.bundles.size(), static_cast<std::size_t>(plans.front().all_pages())),
      lanes_(std::make_unique<Lanes>()) {
  PagePoolOptions pool;
  pool.page_bytes = layout.page_bytes;
  pool.page_count = plans.front().pages;
  pool.other_pages = options.accelerator ? 0 : plans.front().device_pages;
  pool.address_bytes = layout.address_bytes;
  pool.threads = options.threads;
  pool.huge_pages = options.huge_pages;
  pool_ = std::make_unique<HostPagePool>(pool);
  pool.other_pages = pool.page_count;
  pool.page_count = plans.front().device_pages;
  std::byte* values = nullptr;
  if (pool.page_count > 0 && options_.accelerator) {
    values = reserve_on_accelerator(pool, programs);
  } else if (pool.page_count > 0) {
    device_ = std::make_unique<HostPagePool>(pool);
  }
  io_ = make_io_engine(options.io);
  if (options.wrap_io) io_ = options.wrap_io(std::move(io_));
  if (options.slots) {
    slots_ = options.slots;
    slots_->attach(*io_);
    slots_->on_release([this] { io_->wake(); });
  } else if (const std::int64_t slots = disk_slots_for(layout, plans); slots > 0) {
    SlotStoreOptions store;
    store.directories = options.spill_dirs;
    store.slot_bytes = layout.page_bytes;
    store.slot_count = slots;
    store.shares = options.spill_shares;
    slots_ = std::make_shared<SlotStore>(store, *io_);
  }
  for (const Bundle& bundle : layout.bundles) {
    data_[static_cast<std::size_t>(MemoryId::host)].push_back(pool_->address(bundle.address));
    if (!has_device()) continue;
    data_[static_cast<std::size_t>(MemoryId::device)].push_back(accelerator_ ? accelerator_->address(bundle.address)
                                                                             : device_->address(bundle.address));
  }
  for (std::size_t p = 0; p < programs.size(); ++p) {
    programs_.push_back(
        std::make_unique<BoundProgram>(*programs[p], layout.programs[p], values, has_device(), kernels));
    if (values != nullptr) values += HostValues::bytes_of(*programs[p]);
  }
  scratch_bytes_ = round_up(kernels.scratch_bytes(), 4096);
  threads_ = std::make_unique<ThreadPool>(options.threads, [](int) { prepare_matmul_thread(); });
  bundle_slots_.resize(layout.bundles.size());
  replaced_slots_.resize(layout.bundles.size());
  on_disk_.resize(layout.bundles.size());
  for (const Plan& plan : plans) plans_.emplace_back(plan, layout);
  if (accelerator_) find_sequences(programs);
  const bool moves_directly = std::any_of(plans.begin(), plans.end(), [](const Plan& plan) {
    return plan.direct.read_bytes + plan.direct.write_bytes > 0;
  });
  if (accelerator_ && moves_directly) {
    direct_ = std::make_unique<DirectMoves>(*accelerator_, [this] { io_->wake(); });
  }
  try {
    lanes_->thread = std::thread([this] { disk_thread(); });
    if (has_device()) start_workers(plans);
  } catch (...) {  // the system starts no more
    stop_threads();
    throw;
  }
}

Executor::~Executor() {
  wait_until_idle();
  stop_threads();
  direct_.reset();
  accelerator_.reset();  // it lets go of files before the slots close them
}

// Of those that were started. Nothing is under way.
void Executor::stop_threads() {
  {
    const std::lock_guard lock(lanes_->mutex);
    lanes_->stop = true;
  }
  lanes_->changed.notify_all();
  stop_workers();
  if (lanes_->thread.joinable()) lanes_->thread.join();
  if (options_.slots) slots_->on_release({});  // they outlive the engine, and commits may give some back until then
}

std::byte* Executor::host_value(std::int32_t program, const Operand& operand) const {
  std::byte* data = programs_[static_cast<std::size_t>(program)]->host().data(operand.first);
  SPILLWAY_CHECK(data != nullptr, "value %{} is not the host's", index_of(operand.first));
  return data;
}

std::string Executor::describe_io() const {
  return slots_ ? fmt::format("{}; {}", io_->describe(), slots_->describe()) : "nothing is spilled";
}

std::string Executor::describe_pages() const {
  return fmt::format("{} of pages, {} of it in huge pages", format_bytes(pool_->pool_bytes()),
                     format_bytes(pool_->huge_bytes()));
}

// --- One run ---

RunReport Executor::run(const Plan& plan) {
  const auto waits = std::find_if(plans_.begin(), plans_.end(), [&](const PlanWaits& p) { return &p.plan() == &plan; });
  SPILLWAY_CHECK(waits != plans_.end(), "the plan was not given to the executor");
  const auto start = SteadyClock::now();
  throw_failure();
  end_visit(0);
  // Not before the first run: until then its memory may hold a slot of a commit that is read.
  if (const std::int64_t bytes = scratch_bytes_ * options_.threads; scratch_.size_bytes() < bytes) {
    scratch_ = AlignedBytes(bytes);
  }
  const std::shared_ptr<const Following> following = enter(*waits);
  events_.begin(following);
  RunReport report;
  count_traffic(plan, report);
  leave(plan, *following);
  {
    const std::lock_guard lock(speculation_mutex_);
    SPILLWAY_CHECK(!speculation_ || speculation_->run == nullptr, "the run before is neither accepted nor taken back");
    if (speculation_) speculation_->run = following.get();
  }
  {
    const std::lock_guard lock(lanes_->mutex);
    lanes_->submitted.push_back(following);
    lanes_->idle = false;
    for (const LaneId lane : worker_lanes) {
      if (plan.lanes[static_cast<std::size_t>(lane)].empty()) continue;
      lanes_->worker(lane).submitted.push_back(following);
      lanes_->worker(lane).idle = false;
    }
  }
  lanes_->changed.notify_all();
  io_->wake();
  try {
    accelerator_ ? start_ops(*following, report) : run_compute(*following, report);
    await_updates(*following, report);
  } catch (const std::exception&) {
    fail(std::current_exception());  // the disk thread stops; the failure is thrown below
    wait_until_idle();
  }
  throw_failure();
  if (!options_.overlap) drain();
  events_.end(*following);
  report.seconds = seconds_since(start);
  return report;
}

void Executor::drain() {
  wait_until_idle();
  throw_failure();
}

void Executor::wait_until_idle() {
  std::unique_lock lock(lanes_->mutex);
  lanes_->changed.wait(lock, [&] {
    return lanes_->idle && std::all_of(lanes_->workers.begin(), lanes_->workers.end(),
                                       [](const Lanes::Worker& worker) { return worker.idle; });
  });
}

// What the entry names is in memory where the last plan left it, and no dirtier than the entry permits; what it does
// not name is left behind, being of no use or on disk.
std::shared_ptr<const Following> Executor::enter(const PlanWaits& waits) {
  const Plan& plan = waits.plan();
  const std::vector<bool> dead_below = dead_below_on_entry(plan, layout_);
  for (const MemoryId memory : {MemoryId::device, MemoryId::host}) {
    for (std::size_t i = 0; i < plan.entry.stays.size(); ++i) {
      const Stay& stay = plan.stays[index_of(plan.entry.stays[i])];
      if (stay.memory != memory) continue;
      const InMemory* const found = held(memory, stay.bundle);
      SPILLWAY_CHECK(found != nullptr, "bundle {} is not in memory", index_of(stay.bundle));
      if (!found->dirty || plan.entry.dirty[i]) continue;
      // A visit changed it. What comes down before it is read below need not come down twice.
      if (memory == MemoryId::device && dead_below[index_of(stay.bundle)]) continue;
      drain();
      memory == MemoryId::device ? lower(stay.bundle) : write_out(stay.bundle);
    }
  }
  std::vector<std::vector<PageId>> pages;
  for (const StayId id : plan.entry.stays) {
    const auto found = in_memory_.find(residence_of(plan.stays[index_of(id)]));
    pages.push_back(std::move(found->second.pages));
    in_memory_.erase(found);
  }
  const auto& dead = layout_.programs[static_cast<std::size_t>(plan.program)].dead_on_entry;
  for (const auto& [what, left] : in_memory_) {
    const bool useless =
        dead[index_of(what.bundle)] || (what.memory == MemoryId::host && dead_below[index_of(what.bundle)]);
    SPILLWAY_CHECK(!left.dirty || useless, "bundle {} in memory is not in the plan's entry", index_of(what.bundle));
  }
  return std::make_shared<const Following>(trail_.follow(waits, pages));
}

void Executor::leave(const Plan& plan, const Following& following) {
  in_memory_.clear();
  for (std::size_t i = 0; i < plan.exit.stays.size(); ++i) {
    const Stay& stay = plan.stays[index_of(plan.exit.stays[i])];
    InMemory& held = in_memory_[residence_of(stay)];
    held.dirty = plan.exit.dirty[i];
    for (const PageId page : stay.pages) held.pages.push_back(following.physical[index_of(page)]);
  }
}

// In the order of the plan a read comes after the write it needs.
void Executor::count_traffic(const Plan& plan, RunReport& report) {
  report.up_bytes = plan.up_bytes;
  report.down_bytes = plan.down_bytes;
  for (const Instr& instr : plan.instrs) {
    if (!is_of_disk(instr.kind)) continue;
    const BundleId bundle = plan.stays[index_of(instr.stays.front())].bundle;
    const std::int64_t bytes = layout_.bundles[index_of(bundle)].bytes;
    const bool writes = instr.kind == Instr::Kind::write;
    if (!writes && !on_disk_[index_of(bundle)]) continue;
    on_disk_[index_of(bundle)] = true;
    (writes ? report.traffic.write_bytes : report.traffic.read_bytes) += bytes;
    if (options_.tags.empty()) continue;
    Traffic& of_tag = report.traffic_by_tag[static_cast<std::size_t>(options_.tags[index_of(bundle)])];
    (writes ? of_tag.write_bytes : of_tag.read_bytes) += bytes;
  }
}

void Executor::run_compute(const Following& following, RunReport& report) {
  const Plan& plan = following.waits->plan();
  const BoundProgram& program = *programs_[static_cast<std::size_t>(plan.program)];
  Delays delays(options_.delay_seed);
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(LaneId::compute)]) {
    const Instr& instr = plan.instrs[index_of(id)];
    wait_for(following, id, report);
    delays.maybe_sleep();
    for (const StayId stay : instr.begins) begin_stay(following, id, stay);
    events_.op_begin(following, id, instr.op);
    run_op(program, instr.op, compute_pace_);
    events_.op_end(following, id, instr.op);
    end_instr(LaneId::compute);
  }
}

// Of a lane that is not the disk's.
void Executor::end_instr(LaneId lane) {
  const auto l = static_cast<std::size_t>(lane);
  const std::int64_t count = lanes_->done[l].fetch_add(1) + 1;
  if (has_device()) lanes_->signal();
  if (count < lanes_->wake_at[l].load()) return;
  lanes_->wake_at[l] = never;
  io_->wake();
}

void Executor::run_op(const BoundProgram& program, OpId op, OpPace& pace) {
  program.prepare(op, data_of_ops(), call_);
  const BoundProgram::Call& call = call_;
  const auto run = [&] { run_tasks(*threads_, *call.kernel, call.reads, call.writes, scratch_.all()); };
  const std::int64_t parameters = program.updated_by(op);
  parameters > 0 ? pace.run(static_cast<double>(parameters), run) : run();
}

DeviceStream Executor::attach_stay(const Following& following, InstrId instr, StayId id) {
  const Stay& stay = following.waits->plan().stays[index_of(id)];
  const LaneId lane = following.waits->plan().instrs[index_of(instr)].lane;
  const DeviceStream by = lane == LaneId::up     ? DeviceStream::up
                          : lane == LaneId::read ? DeviceStream::disk
                                                 : DeviceStream::compute;
  std::vector<PageId> pages;
  for (const PageId page : stay.pages) pages.push_back(following.physical[index_of(page)]);
  attach(pages, residence_of(stay), by);
  return by;
}

void Executor::begin_stay(const Following& following, InstrId instr, StayId id) {
  const Stay& stay = following.waits->plan().stays[index_of(id)];
  const DeviceStream by = attach_stay(following, instr, id);
  const std::int64_t bytes = std::ssize(stay.pages) * layout_.page_bytes;
  if (options_.poison && stay.memory == MemoryId::device && accelerator_) {
    accelerator_->fill(data(stay.bundle, stay.memory), poison, bytes, by);
  } else if (options_.poison) {
    std::memset(data(stay.bundle, stay.memory), std::to_integer<int>(poison), static_cast<std::size_t>(bytes));
  }
  events_.stay_begin(following, instr, id);
}

// Puts the pages of a bundle next to each other.
void Executor::attach(std::span<const PageId> physical, const Residence& what, DeviceStream by) {
  const std::int64_t first = what.memory == MemoryId::device ? pool_->page_count() : 0;
  const std::int64_t address = layout_.bundles[index_of(what.bundle)].address;
  std::vector<PageId> pages;
  for (const PageId page : physical) pages.push_back(static_cast<PageId>(static_cast<std::int64_t>(page) - first));
  if (what.memory == MemoryId::device && accelerator_) return accelerator_->attach(address, pages, by);
  HostPagePool& pool = pool_of(what.memory);
  const bool flat = is_flat(pages);
  flat ? pool.send_home(pages) : pool.attach(pages, address);
  data_[static_cast<std::size_t>(what.memory)][index_of(what.bundle)] =
      flat ? pool.home(pages.front()) : pool.address(address);
}

bool Executor::reached(const LaneClock& clock) const {
  for (std::size_t lane = 0; lane < lane_count; ++lane) {
    if (lanes_->done[lane].load() < clock[lane]) return false;
  }
  return true;
}

LaneClock Executor::done() const {
  LaneClock clock{};
  for (std::size_t lane = 0; lane < lane_count; ++lane) clock[lane] = lanes_->done[lane].load();
  return clock;
}

void Executor::wait_for(const Following& following, InstrId id, RunReport& report) {
  wait_until(following, id, following.wait_of(id), report);
}

void Executor::wait_until(const Following& following, InstrId id, const LaneClock& clock, RunReport& report) {
  if (reached(clock)) {
    if (lanes_->failed.load()) throw_failure();
    return;
  }
  const auto start = SteadyClock::now();
  for (;;) {
    const std::uint32_t seen = lanes_->events.load();
    if (lanes_->failed.load()) throw_failure();
    if (reached(clock)) break;
    events_.waits(following, id, clock, done());
    lanes_->events.wait(seen);
  }
  events_.waited(following, id);
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
