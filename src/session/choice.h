// How a step is worked through: what is recomputed, in which order, and by which policy it is planned. All choices give
// the same bits, so the fastest is taken, as the simulator has it: the same rates give the same choice, and nothing is
// measured here.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/programs.h"
#include "plan/plan.h"
#include "session/options.h"
#include "sim/kept_state.h"

namespace spillway {

// A choice must be faster by this share of a step than the one that is held so far.
inline constexpr double least_gain = 0.002;

struct WorkChoice {
  WorkOrder order = WorkOrder::by_layer;
  Recompute recompute = {};
  Policy policy = Policy::automatic;
  std::int32_t deferred_layers = 0;  // whose update waits for their next forward, so that the disk has work then too
  double pinned = 0;  // share of the pages beyond the smallest budget that is kept for state of this kind:
  Keep keep = Keep::awaited;
  double settling = default_settling;  // of our own policy, see PlanRequest

  bool operator==(const WorkChoice&) const = default;
};
std::string describe(const WorkChoice& choice);  // "by layer, block recomputed in 6 layers"

// What a step of a choice takes, in virtual time.
struct WorkScore {
  bool fits = false;
  double seconds = 0;
  double slow_disk_seconds = 0;  // where the disk has what `disk_margin` leaves of its rate; 0: not looked at
  double stalled_seconds = 0;    // computing waits for disk or link
  double slowed_seconds = 0;     // computing takes longer beside the disk
  std::int64_t link_bytes = 0;   // between host and device, both ways
  std::int64_t read_bytes = 0;
  std::int64_t state_write_bytes = 0;
  std::int64_t local_write_bytes = 0;  // activations and gradients
  double commit_bytes_per_second = 0;  // that commits write beyond these
  std::int64_t ops = 0;                // of all Programs that were planned for it

  std::int64_t write_bytes() const { return state_write_bytes + local_write_bytes; }
  bool moves_nothing() const { return read_bytes + write_bytes() + link_bytes == 0; }
  // What choices are compared by: the disk is as often slow as not.
  double mean_seconds() const { return (seconds + std::max(seconds, slow_disk_seconds)) / 2; }
  double writes_per_step() const;                         // bytes, with a step's share of commits
  double writes_per_day() const;                          // bytes, of a run that never pauses, commits included
  bool writes_at_most(std::int64_t bytes_per_day) const;  // 0: any
};

// Ops planned for the choices of a run, all together: some ten seconds of one processor at most.
constexpr std::int64_t most_ops_for_work = 600'000;
constexpr std::int64_t most_ops_for_estimate = most_ops_for_work / 4;  // near another choice

struct WorkLimits {
  std::int64_t layers = 0;
  std::int64_t micro_batches = 1;
  std::int64_t max_disk_writes_per_day = 0;  // bytes; 0: any
  bool commits_each_step = false;            // what that writes is among a step's bytes
  // Asked for by the user, or of no use to choose; without, chosen.
  std::optional<WorkOrder> order = {};
  std::optional<Recompute> recompute = {};
  std::optional<Policy> policy = {};
  std::optional<std::int32_t> deferred_layers = {};
  std::optional<double> settling = {};
  // Tried first, and kept state of its kind before other policies, since little work may be left: what was chosen for
  // steps that go another way or have other options, or what takes the least of a device's memory.
  std::optional<WorkChoice> before = {};
  bool stays_near = false;  // of `before`, whose order stays: less is tried, for steps that go another way
  std::int64_t most_ops = most_ops_for_work;  // to be planned
};

// What is tried first without a `before`: everything kept, by layer, unless forced.
WorkChoice first_choice(const WorkLimits& limits);

// All that may be chosen, by layer first unless forced.
std::vector<WorkOrder> orders_of(const WorkLimits& limits);

struct WorkTried {
  WorkChoice choice;
  WorkScore score;
};

struct WorkChosen {
  WorkChoice choice;
  WorkScore score;
  std::vector<WorkTried> tried;  // in the order of trying
};

// Tries a bounded number of choices, fewer when a step has many ops, and takes the fastest; of two as fast, that which
// writes a tenth less. Nothing but the first is tried where that does not fit or moves nothing, and nothing but the
// other order where it loses next to nothing to disk or link. With max_disk_writes_per_day, choices under it come
// before those above it, whatever their speed; where none is under it, the one that writes least a step is taken, since
// a slow one writes little a day and the more in the whole run, and note_on says so.
WorkChosen choose_work(const WorkLimits& limits, const std::function<WorkScore(const WorkChoice&)>& score);

// What a user should know of a choice with this score, made among these; empty when nothing was to be chosen.
// `way_of_tried` follows what it is compared with, which may update at other times.
std::string note_on(const WorkChoice& choice, const WorkScore& score, const std::vector<WorkTried>& tried,
                    const WorkLimits& limits, std::string_view way_of_tried = {});

// What `recompute` asks for: none, cheap, attention or block, and after a colon for how many layers; nothing for auto.
// Throws UserError.
std::optional<Recompute> forced_recompute(const TrainOptions& options, std::int64_t layers);
std::optional<WorkOrder> forced_order(const TrainOptions& options);
// Layers whose update waits, as `deferred_layers` asks; 0 where steps clip, which has ways of its own, or where each
// is to commit; nothing for auto. Throws UserError.
std::optional<std::int32_t> forced_deferral(const TrainOptions& options, std::int64_t layers);

// A sentence for each of `clip_mode` and `deferred_layers` that is asked for and has nothing to decide.
std::vector<std::string> idle_requests(const TrainOptions& options);

// The share of the parameters that the device updates, as `update_on` says: none for cpu, all for device, and one in K
// for a number; nothing for auto. Throws UserError.
std::optional<double> forced_device_updates(const TrainOptions& options);

}  // namespace spillway
