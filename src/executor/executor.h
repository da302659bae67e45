// The executor interprets plans: it starts the instructions of each lane in order, each when what it waits for is done,
// and decides nothing. Compute runs on the calling thread and its pool; one further thread moves pages to and from disk
// and sleeps when it has nothing to do. For plans with a device, two more copy between its pages and the host's, one
// for each direction, and where ops run in the host's memory, another one runs them on a pool of its own.
//
// The device is a virtual one, a second pool of pages, in which the same processor computes, behind a link that is held
// to its rates; or an Accelerator, on which ops are started and end later. Then the compute lane runs ahead of the
// device as far as its waits allow, and an op counts as done when the device has done it.
//
// A direct move between disk and device is a move of the disk: with a virtual device the engine moves it to or from
// that device's pages, held to the disk's rate alone; with an Accelerator the device does, and a few threads wait for
// it (executor/direct_moves.h), so that the disk thread goes on.
//
// Plans follow each other as a stream: a run returns when its ops are done, on both processors, with moves of its tail
// still under way, and the next plan's instructions queue behind them in each lane. What the next plan waits for of
// them is in plan/trail.h.
//
// Everything large is reserved by the constructor, but for scratch, which the first run takes; running a plan allocates
// nothing large.
#pragma once

#include <array>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/page_pool.h"
#include "device/thread_pool.h"
#include "executor/accelerator.h"
#include "executor/direct_moves.h"
#include "executor/kernel_table.h"
#include "executor/link_pace.h"
#include "executor/op_pace.h"
#include "executor/run_events.h"
#include "machine/rates.h"
#include "plan/trail.h"
#include "store/io.h"
#include "store/slot_file.h"

namespace spillway {

struct ExecutorOptions {
  int threads = 1;
  bool huge_pages = true;
  std::vector<std::filesystem::path> spill_dirs;  // used when a plan needs slots
  std::vector<double> spill_shares = {};          // of the slots, by directory; empty: even
  std::shared_ptr<SlotStore> slots = {};          // instead of one that the executor makes; not attached yet
  bool overlap = true;                            // a run returns while moves of its tail are under way
  bool replay = true;                             // an accelerator may start ops as sequences; see accelerator.h
  // Check what is read of state against what was written, but for what an accelerator reads directly.
  bool verify_reads = false;
  // At the commit of a plan: the slots that hold the versions of its step, those of state that is not committed left
  // out, each held once for the callee, who releases them. On the disk thread, so it must be brief; of a speculated run
  // not before it is accepted, then possibly on the thread that does, and never when it is taken back.
  std::function<void(SlotSnapshot)> on_commit = {};
  LinkRate link = {};       // to the device; rates of 0: as fast as memory is copied
  UpdateRates update = {};  // of ops that may run anywhere, with a device; rates of 0: as fast as they run
  // The device, and the kernels are its own; null: it is virtual. Nobody else uses it meanwhile.
  std::shared_ptr<Accelerator> accelerator = {};
  IoOptions io;
  std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>)> wrap_io = {};  // a failing disk, for tests
  bool poison = false;                // fill pages with NaN before a stay begins on them
  std::uint64_t delay_seed = 0;       // not 0: sleep at random before instructions, to shake the lanes
  EventRecorder* recorder = nullptr;  // is told what happens, and outlives the executor; null: nobody
  std::vector<MemoryTag> tags = {};   // by bundle: what it holds, for the report; may be empty
};

// What one run of a plan did.
struct RunReport {
  // Bytes of its moves, some of which may still be under way; what was never written is zero and not read.
  Traffic traffic;
  std::int64_t up_bytes = 0;  // of its copies to the device
  std::int64_t down_bytes = 0;
  std::array<Traffic, memory_tag_count> traffic_by_tag{};  // the same, where the executor was given tags
  double seconds = 0;                                      // until its ops were done
  double stalled_seconds = 0;                              // compute waited for disk or link
};

class Executor {
 public:
  // `plans` are those to be run; all have the same number of pages, of each memory. Everything given must outlive the
  // executor.
  Executor(const Layout& layout, std::span<const Program* const> programs, std::span<const Plan> plans,
           KernelCache& kernels, const ExecutorOptions& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Inputs and outputs of a Program, for the host to write before a run and to read after it.
  std::byte* host_value(std::int32_t program, const Operand& operand) const;

  // Runs the ops of `plan`, one of those given; moves may still be under way when it returns. What is in memory must be
  // what its entry says: at first nothing is; see `settle`. Throws DeviceError, also for a move of an earlier plan;
  // after that every call throws it again.
  RunReport run(const Plan& plan);

  // Waits until nothing is under way. Throws the DeviceError of a move that failed.
  void drain();

  // Drains, and makes the bundles that `boundary` of `plan` names, and no others, be in memory, none dirtier than it
  // says.
  void settle(const Plan& plan, const Boundary& boundary);

  // Whether `plan` may run with no settling before it. Puts away what is in memory for visits. Throws DeviceError.
  bool is_ready_for(const Plan& plan);

  // The next run may be taken back: the versions that these state bundles have before it stay on disk until `accept` or
  // `revert`, whichever comes first after that run. Plan::held_slots covers them. A bundle whose copy on disk is older
  // than memory is written first.
  void speculate(std::span<const BundleId> bundles);
  void accept();  // the new versions stand
  void revert();  // drains; the versions before are the newest again, on disk, and no longer in memory

  // Between runs: drains, and calls `visit` with the bytes of a piece. Changes are kept when `changes` is set. Pieces
  // that were never written are zero. Throws DeviceError.
  void visit_piece(PieceId piece, bool changes, const std::function<void(std::byte* data)>& visit);

  // Drains, and writes what in memory is newer than its copy on disk; it stays in memory. Throws DeviceError.
  void write_residents();
  // Before anything is in memory: the state is what these slots hold, by bundle. Takes over their holds.
  void adopt(const SlotSnapshot& snapshot);

  // Between runs: the slots that hold the newest version on disk of every state bundle, each held once more. What is in
  // memory may be newer.
  SlotSnapshot snapshot() const;

  std::string describe_io() const;
  std::string describe_pages() const;
  std::int64_t page_moves() const { return pool_->moves(); }  // to addresses of their own, or back; so far
  std::string describe_device() const;                        // empty without one

 private:
  struct Lanes;
  struct Move;

  std::shared_ptr<const Following> enter(const PlanWaits& waits);
  void leave(const Plan& plan, const Following& following);
  void count_traffic(const Plan& plan, RunReport& report);
  void run_compute(const Following& following, RunReport& report);
  void run_op(const BoundProgram& program, OpId op, OpPace& pace);
  void await_updates(const Following& following, RunReport& report);

  // With an accelerator.
  struct Started;
  std::byte* reserve_on_accelerator(const PagePoolOptions& pool, std::span<const Program* const> programs);
  void find_sequences(std::span<const Program* const> programs);
  void start_ops(const Following& following, RunReport& report);
  void start_one_by_one(const Following& following, RunReport& report);
  void start_sequences(const Following& following, RunReport& report);
  void start_sequence(const Plan& plan, std::int64_t number, std::span<const InstrId> instrs);
  void start_op(const BoundProgram& program, OpId op);
  void end_op(const Following& following, std::deque<Started>& started);
  void put_values(const BoundProgram& program);
  void get_values(const BoundProgram& program, OpId op);
  void move_over_link(LaneId lane, BundleId bundle, std::span<const PageId> host_pages);
  std::vector<PageId> host_pages_of(const Following& following, const Instr& instr) const;
  void begin_stay(const Following& following, InstrId instr, StayId id);
  DeviceStream attach_stay(const Following& following, InstrId instr, StayId id);
  bool reached(const LaneClock& clock) const;
  void wait_for(const Following& following, InstrId id, RunReport& report);
  void wait_until(const Following& following, InstrId id, const LaneClock& clock, RunReport& report);
  LaneClock done() const;
  void throw_failure();
  void fail(std::exception_ptr failure);
  void wait_until_idle();

  // The disk thread.
  void disk_thread();
  void run_disk();
  bool take_submitted(bool idle);
  bool ask_for_wake();
  void take(const IoCompletion& completion);
  void take_direct();
  bool may_start(const Following& following, InstrId id) const;
  bool start_moves(LaneId lane);
  const Following* next_of(LaneId lane, InstrId& id);
  void start_move(LaneId lane);
  void commit(const Following& following);
  void end_move(LaneId lane, Move& move);

  // The threads of the link's directions, and that of the host's processor.
  void serve(LaneId lane, const std::function<void(const Following&)>& run_lane);
  void copy_thread(LaneId lane);
  void run_copies(const Following& following, LaneId lane, LinkPace& pace);
  void update_thread();
  void run_updates(const Following& following, OpPace& pace);
  bool wait_in_lane(const LaneClock& clock);
  void end_instr(LaneId lane);
  void start_workers(std::span<const Plan> plans);
  void stop_workers();
  void stop_threads();

  // Moves outside a plan, on the calling thread.
  struct InMemory;
  InMemory& take_pages(const Residence& what, std::span<const PageId> wanted = {});
  void bring_in(BundleId bundle, std::span<const PageId> wanted = {});
  void write_out(BundleId bundle);
  void lift(BundleId bundle, std::span<const PageId> wanted);
  void lower(BundleId bundle, bool to_host = false);
  void put_away(MemoryId memory, const std::map<Residence, bool>& wanted, const std::vector<bool>& dead);
  InMemory* held(MemoryId memory, BundleId bundle);
  void end_visit(std::size_t keep);
  void bring_down(BundleId bundle, bool changes);
  void move_now(BundleId bundle, IoRequest::Kind kind);
  void copy_now(BundleId bundle, LaneId lane);

  std::int32_t submit(const Residence& what, IoRequest::Kind kind, std::uint64_t tag);
  void zero(const Residence& what);
  void keep_version_before(const Following* run, BundleId bundle);
  bool keeps_slots(BundleId bundle) const;
  void replace_slots(BundleId bundle);
  void seal_slots(BundleId bundle);
  void verify_slots(const Residence& what) const;
  void drop_replaced(BundleId bundle);
  void keep_replaced(BundleId bundle);
  int disk_of(BundleId bundle) const;
  std::byte* data(BundleId bundle, MemoryId memory = MemoryId::host) const {
    return data_[static_cast<std::size_t>(memory)][index_of(bundle)];
  }
  const BundleData& data_of_ops() const {
    return data_[static_cast<std::size_t>(has_device() ? MemoryId::device : MemoryId::host)];
  }
  HostPagePool& pool_of(MemoryId memory) const { return memory == MemoryId::host ? *pool_ : *device_; }
  void attach(std::span<const PageId> physical, const Residence& what, DeviceStream by = DeviceStream::compute);
  bool has_device() const { return device_ != nullptr || accelerator_ != nullptr; }
  std::int64_t page_count(MemoryId memory) const;

  const Layout& layout_;
  ExecutorOptions options_;
  std::unique_ptr<HostPagePool> pool_;
  // Its pages are numbered after those of the host. At most one of the two; null: it is not there.
  std::unique_ptr<HostPagePool> device_;
  std::shared_ptr<Accelerator> accelerator_;  // its end gives back what was reserved
  std::shared_ptr<SlotStore> slots_;          // outlives the engine, which may have requests under way on its files
  std::unique_ptr<IoEngine> io_;
  std::unique_ptr<DirectMoves> direct_;  // of an accelerator; null: no plan has such moves
  // By memory, where bundles lie: those in memory, and others where they did last or will. That of a bundle changes
  // where a stay of it begins, so who may use the bundle may read it.
  std::array<BundleData, memory_count> data_;
  std::vector<std::unique_ptr<BoundProgram>> programs_;
  std::unique_ptr<ThreadPool> threads_;
  AlignedBytes scratch_;  // scratch_bytes_ for each thread
  std::int64_t scratch_bytes_ = 0;
  BoundProgram::Call call_;  // of the op that runs
  OpPace compute_pace_;
  std::unique_ptr<ThreadPool> update_threads_;  // of the update lane; null: no plan has one
  std::vector<PlanWaits> plans_;
  // With an accelerator, by plan: where the sequences of its compute lane begin, and its end; empty: one by one.
  std::vector<std::vector<std::size_t>> sequences_;
  RunEvents events_;
  Trail trail_;

  struct InMemory {
    std::vector<PageId> pages = {};  // physical
    bool dirty = true;               // may be newer than the copy below
  };
  std::map<Residence, InMemory> in_memory_;  // state bundles when the plans so far are done
  std::vector<bool> on_disk_;                // by bundle: it has a copy when the plans so far are done
  struct Visit {
    BundleId bundle = BundleId::none;
    bool changed = false;
    bool of_device = false;  // it is in an accelerator's memory, and down for the visit
    bool passes = true;      // it has pages of the host for the visit alone
  };
  std::vector<Visit> visits_;  // bundles in memory for visits alone, the latest last; at most visited_bundles
  std::vector<std::vector<SlotId>> bundle_slots_;    // the newest version of each bundle on disk
  std::vector<std::vector<SlotId>> replaced_slots_;  // by bundle: freed when the write in flight is complete

  // A run that may be taken back. The disk thread notes the slots that its first write of a bundle replaces.
  struct Speculation {
    const Following* run = nullptr;
    std::vector<bool> bundles;  // by bundle
    std::map<BundleId, std::vector<SlotId>> before;
    std::optional<SlotSnapshot> commit;  // of this run, when it was reached
  };
  std::mutex speculation_mutex_;
  std::optional<Speculation> speculation_;

  std::unique_ptr<Lanes> lanes_;
};

}  // namespace spillway
