#include "executor/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "ops/matmul/matmul.h"

namespace spillway {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// A small generator for the delays of tests; each thread has its own.
class Delays {
 public:
  explicit Delays(std::uint64_t seed) : state_(seed) {}
  void maybe_sleep() {
    if (state_ == 0) return;
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    if (state_ % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(state_ / 8 % 300));
  }

 private:
  std::uint64_t state_;
};

constexpr std::int32_t never = std::numeric_limits<std::int32_t>::max();
constexpr std::byte poison{0xff};  // NaN in every floating-point type
constexpr std::int32_t max_reads_in_flight = 16;

}  // namespace

// What the compute thread and the disk thread share while a plan runs.
struct Executor::Lanes {
  std::array<std::atomic<std::int32_t>, lane_count> done{};  // instructions of each lane that are done, in order
  std::atomic<std::uint32_t> events{0};                      // grows with every change the compute thread may wait for
  std::atomic<std::int32_t> wake_at{never};                  // compute position at which the disk thread wants a wake
  std::atomic<bool> failed{false};

  std::mutex mutex;
  std::condition_variable changed;
  const Prepared* job = nullptr;  // taken by the disk thread; null when it is done
  std::exception_ptr failure;     // the first one
  bool stop = false;

  // Of the disk thread alone.
  std::array<std::size_t, lane_count> next{};  // next to start in its lane
  std::array<std::int32_t, lane_count> in_flight{};
  std::vector<bool> complete;  // by instruction
  std::thread thread;

  void signal() {
    events.fetch_add(1);
    events.notify_all();
  }
};

Executor::Executor(const Layout& layout, std::span<const Program* const> programs, std::span<const Plan> plans,
                   KernelCache& kernels, const ExecutorOptions& options)
    : layout_(layout), options_(options), lanes_(std::make_unique<Lanes>()) {
  PagePoolOptions pool;
  pool.page_bytes = layout.page_bytes;
  pool.page_count = plans.front().pages;
  pool.address_bytes = layout.address_bytes;
  pool.threads = options.threads;
  pool_ = std::make_unique<HostPagePool>(pool);
  io_ = make_io_engine(options.io);
  if (options.wrap_io) io_ = options.wrap_io(std::move(io_));
  if (const std::int64_t slots = disk_slots_for(layout, plans); slots > 0) {
    slots_ = std::make_unique<SlotStore>(SlotStoreOptions{options.spill_dirs, layout.page_bytes, slots}, *io_);
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
  report.traffic = plan.traffic;
  try {
    run_compute(*found, report);
  } catch (const std::exception&) {
    fail(std::current_exception());  // the disk thread stops; the failure is thrown below
  }
  {
    std::unique_lock lock(lanes_->mutex);
    lanes_->changed.wait(lock, [&] { return lanes_->job == nullptr; });
  }
  throw_failure();
  leave(plan);
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

// --- The disk thread ---

void Executor::disk_thread() {
  for (;;) {
    const Prepared* job = nullptr;
    {
      std::unique_lock lock(lanes_->mutex);
      lanes_->changed.wait(lock, [&] { return lanes_->stop || lanes_->job != nullptr; });
      if (lanes_->stop) return;
      job = lanes_->job;
    }
    try {
      run_disk(*job);
    } catch (const std::exception&) {
      fail(std::current_exception());
    }
    {
      const std::lock_guard lock(lanes_->mutex);
      lanes_->job = nullptr;
    }
    lanes_->changed.notify_all();
  }
}

void Executor::run_disk(const Prepared& prepared) {
  const Plan& plan = *prepared.plan;
  Delays delays(options_.delay_seed * 2654435761U + 1);
  std::vector<IoCompletion> completions;
  const auto waiting = [&] { return lanes_->in_flight[1] + lanes_->in_flight[2] > 0; };
  for (;;) {
    const bool failed = lanes_->failed.load();
    if (!failed) {
      if (options_.delay_seed != 0) delays.maybe_sleep();
      while (start_moves(prepared, LaneId::read) || start_moves(prepared, LaneId::write)) {
      }
    }
    const bool all_started = lanes_->next[1] == plan.lanes[1].size() && lanes_->next[2] == plan.lanes[2].size();
    if ((failed || all_started) && !waiting()) return;
    // Ask to be woken when the compute lane reaches what a lane's head waits for, then look once more.
    std::int32_t wake_at = never;
    bool ready = false;
    for (const LaneId lane : {LaneId::read, LaneId::write}) {
      const auto l = static_cast<std::size_t>(lane);
      if (failed || lanes_->next[l] == plan.lanes[l].size()) continue;
      const Clock& clock = prepared.waits[index_of(plan.lanes[l][lanes_->next[l]])];
      wake_at = std::min(wake_at, clock[0] > lanes_->done[0].load() ? clock[0] : never);
    }
    lanes_->wake_at = wake_at;
    for (const LaneId lane : {LaneId::read, LaneId::write}) {
      const auto l = static_cast<std::size_t>(lane);
      if (failed || lanes_->next[l] == plan.lanes[l].size()) continue;
      const std::int32_t limit = lane == LaneId::read ? max_reads_in_flight : max_writes_in_flight;
      ready =
          ready || (lanes_->in_flight[l] < limit && reached(prepared.waits[index_of(plan.lanes[l][lanes_->next[l]])]));
    }
    if (ready) continue;
    completions.clear();
    io_->wait(completions);
    for (const IoCompletion& completion : completions) {
      const auto id = static_cast<InstrId>(completion.tag);
      const Instr& instr = plan.instrs[index_of(id)];
      const auto kind = instr.kind == Instr::Kind::read ? IoRequest::Kind::read : IoRequest::Kind::write;
      bytes_left_[index_of(id)] -= completion.bytes;
      const bool last = --parts_left_[index_of(id)] == 0;
      if (completion.error != 0 || (last && bytes_left_[index_of(id)] != 0)) {
        const BundleId bundle = plan.stays[index_of(instr.stays.front())].bundle;
        fail(std::make_exception_ptr(slots_->failure(bundle_slots_[index_of(bundle)].front(), kind, completion)));
      }
      if (last) finish_move(prepared, id);
    }
  }
}

bool Executor::start_moves(const Prepared& prepared, LaneId lane) {
  const auto l = static_cast<std::size_t>(lane);
  const auto& order = prepared.plan->lanes[l];
  const std::int32_t limit =
      lane == LaneId::read ? max_reads_in_flight : static_cast<std::int32_t>(max_writes_in_flight);
  bool started = false;
  while (lanes_->next[l] < order.size() && lanes_->in_flight[l] < limit &&
         reached(prepared.waits[index_of(order[lanes_->next[l]])])) {
    start_move(prepared, order[lanes_->next[l]]);
    started = true;
  }
  return started;
}

void Executor::start_move(const Prepared& prepared, InstrId id) {
  const Instr& instr = prepared.plan->instrs[index_of(id)];
  const auto lane = static_cast<std::size_t>(instr.lane);
  const BundleId bundle = prepared.plan->stays[index_of(instr.stays.front())].bundle;
  ++lanes_->next[lane];
  ++lanes_->in_flight[lane];
  for (const StayId stay : instr.begins) begin_stay(*prepared.plan, stay, options_.poison);
  bytes_left_[index_of(id)] = layout_.bundles[index_of(bundle)].bytes;
  if (instr.kind == Instr::Kind::write) {
    replace_slots(bundle);
    parts_left_[index_of(id)] = submit(bundle, IoRequest::Kind::write, static_cast<std::uint64_t>(id));
  } else if (bundle_slots_[index_of(bundle)].empty()) {  // never written: zero
    std::memset(data(bundle), 0, static_cast<std::size_t>(layout_.bundles[index_of(bundle)].bytes));
    finish_move(prepared, id);
  } else {
    parts_left_[index_of(id)] = submit(bundle, IoRequest::Kind::read, static_cast<std::uint64_t>(id));
  }
}

// Moves of a lane count as done in order.
void Executor::finish_move(const Prepared& prepared, InstrId id) {
  const Instr& instr = prepared.plan->instrs[index_of(id)];
  const auto lane = static_cast<std::size_t>(instr.lane);
  --lanes_->in_flight[lane];
  if (instr.kind == Instr::Kind::write) drop_replaced(prepared.plan->stays[index_of(instr.stays.front())].bundle);
  lanes_->complete[index_of(id)] = true;
  const auto& order = prepared.plan->lanes[lane];
  std::int32_t done = lanes_->done[lane].load();
  while (static_cast<std::size_t>(done) < order.size() &&
         lanes_->complete[index_of(order[static_cast<std::size_t>(done)])]) {
    ++done;
  }
  lanes_->done[lane] = done;
  lanes_->signal();
}

// --- Slots ---

// A new version goes to new slots; the old ones stand until it is complete. A local bundle has one place.
void Executor::replace_slots(BundleId bundle) {
  auto& slots = bundle_slots_[index_of(bundle)];
  if (!layout_.bundles[index_of(bundle)].state && !slots.empty()) return;
  SPILLWAY_CHECK(slots_ != nullptr, "a plan moves bundle {}, but there is no slot file", index_of(bundle));
  replaced_slots_[index_of(bundle)] = std::move(slots);
  slots.clear();
  for (std::int64_t i = layout_.pages_of(bundle); i > 0; --i) slots.push_back(slots_->allocate());
}

void Executor::drop_replaced(BundleId bundle) {
  for (const SlotId slot : replaced_slots_[index_of(bundle)]) slots_->release(slot);
  replaced_slots_[index_of(bundle)].clear();
}

// One request for each run of slots that lie next to each other. Returns how many.
std::int32_t Executor::submit(BundleId bundle, IoRequest::Kind kind, std::uint64_t tag) {
  const auto& slots = bundle_slots_[index_of(bundle)];
  const std::int64_t bytes = layout_.bundles[index_of(bundle)].bytes;
  std::int32_t requests = 0;
  for (std::size_t begin = 0; begin < slots.size();) {
    const SlotStore::Location first = slots_->location(slots[begin]);
    std::size_t end = begin + 1;
    while (end < slots.size()) {
      const SlotStore::Location next = slots_->location(slots[end]);
      const std::int64_t offset = first.offset_bytes + static_cast<std::int64_t>(end - begin) * layout_.page_bytes;
      if (next.file != first.file || next.offset_bytes != offset) break;
      ++end;
    }
    const std::int64_t from = static_cast<std::int64_t>(begin) * layout_.page_bytes;
    const std::int64_t to = std::min(bytes, static_cast<std::int64_t>(end) * layout_.page_bytes);
    io_->submit({kind, first.file, first.offset_bytes, data(bundle) + from, to - from, tag});
    ++requests;
    begin = end;
  }
  return requests;
}

// --- Between runs ---

void Executor::bring_in(BundleId bundle) {
  std::vector<bool> used(static_cast<std::size_t>(pool_->page_count()), false);
  for (const auto& [other, pages] : in_memory_) {
    for (const PageId page : pages) used[index_of(page)] = true;
  }
  std::vector<PageId> pages;
  for (std::size_t p = 0; p < used.size() && static_cast<std::int64_t>(pages.size()) < layout_.pages_of(bundle); ++p) {
    if (!used[p]) pages.push_back(static_cast<PageId>(p));
  }
  SPILLWAY_CHECK(static_cast<std::int64_t>(pages.size()) == layout_.pages_of(bundle), "no {} free pages for bundle {}",
                 layout_.pages_of(bundle), index_of(bundle));
  for (std::size_t i = 0; i < pages.size(); ++i) {
    pool_->attach(pages[i],
                  layout_.bundles[index_of(bundle)].address + static_cast<std::int64_t>(i) * layout_.page_bytes);
  }
  in_memory_[bundle] = std::move(pages);
  if (bundle_slots_[index_of(bundle)].empty()) {
    std::memset(data(bundle), 0, static_cast<std::size_t>(layout_.bundles[index_of(bundle)].bytes));
  } else {
    move_now(bundle, IoRequest::Kind::read);
  }
}

void Executor::write_out(BundleId bundle) {
  replace_slots(bundle);
  move_now(bundle, IoRequest::Kind::write);
  drop_replaced(bundle);
}

void Executor::move_now(BundleId bundle, IoRequest::Kind kind) {
  std::int32_t left = submit(bundle, kind, 0);
  std::int64_t left_bytes = layout_.bundles[index_of(bundle)].bytes;
  IoCompletion failed;
  std::vector<IoCompletion> completions;
  while (left > 0) {  // after a failure too: nothing is to be under way when the caller unwinds
    completions.clear();
    io_->wait(completions);
    for (const IoCompletion& completion : completions) {
      left_bytes -= completion.bytes;
      if (failed.error == 0) failed = completion;
      --left;
    }
  }
  if (failed.error != 0 || left_bytes != 0) {
    throw slots_->failure(bundle_slots_[index_of(bundle)].front(), kind, failed);
  }
}

void Executor::visit_piece(PieceId piece, bool changes, const std::function<void(std::byte* data)>& visit) {
  const Place& place = layout_.piece_places[index_of(piece)];
  const auto visited =
      std::find_if(visits_.begin(), visits_.end(), [&](const Visit& entry) { return entry.bundle == place.bundle; });
  if (visited != visits_.end()) {
    visited->changed = visited->changed || changes;
    std::rotate(visited, visited + 1, visits_.end());
  } else if (!in_memory_.contains(place.bundle)) {
    end_visit(visited_bundles - 1);
    bring_in(place.bundle);
    visits_.push_back({place.bundle, changes});
  }
  visit(data(place.bundle) + place.offset_bytes);
}

// Puts away all but the latest `keep`.
void Executor::end_visit(std::size_t keep) {
  while (visits_.size() > keep) {
    const Visit visit = visits_.front();
    visits_.erase(visits_.begin());
    if (visit.changed) write_out(visit.bundle);
    in_memory_.erase(visit.bundle);
  }
}

void Executor::settle(const Plan& plan, const Boundary& boundary) {
  end_visit(0);
  std::vector<BundleId> wanted;
  for (const StayId id : boundary.stays) wanted.push_back(plan.stays[index_of(id)].bundle);
  for (auto held = in_memory_.begin(); held != in_memory_.end();) {
    const BundleId bundle = held->first;
    const bool stays = std::find(wanted.begin(), wanted.end(), bundle) != wanted.end();
    if (!stays) write_out(bundle);
    held = stays ? std::next(held) : in_memory_.erase(held);
  }
  for (const BundleId bundle : wanted) {
    if (!in_memory_.contains(bundle)) bring_in(bundle);
  }
}

}  // namespace spillway
