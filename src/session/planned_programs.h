// Programs over one State, laid out and planned for one budget, and what beside their pages the budget must hold.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "executor/kernel_table.h"
#include "machine/machine.h"
#include "plan/plan.h"
#include "session/run_choices.h"
#include "telemetry/event_recorder.h"

namespace spillway {

// The rings for these Programs' events.
RingCapacities rings_for(std::span<const Program* const> programs, const RunChoices& choices);

// Programs over one State, laid out and planned for one budget. Plans are in the order of the Programs; where only some
// steps commit, further plans of the Programs that may end a step follow, which commit.
struct PlannedPrograms {
  std::vector<const Program*> programs;
  Layout layout;
  Machine machine;
  std::int64_t min_memory_bytes = 0;
  std::int64_t in_memory_bytes = 0;
  std::int64_t min_device_bytes = 0;  // of a device, if there is one
  std::int64_t device_pages = 0;      // of the plans
  std::int64_t least_pages = 0;       // of the host's memory, with which a step goes at all
  std::int64_t in_memory_pages = 0;   // that hold all of it
  std::vector<Plan> plans;            // empty when the budget is too small, or the device
  // The first of them without its pages (PlanRequest::unplaced), for these to be laid; empty where they are not to be.
  Plan first_unplaced;
  // By Program: its plan that commits, the only one where each run of it does; -1: none.
  std::vector<std::int32_t> committing;

  bool fits() const { return !plans.empty(); }
  bool may_fit() const { return machine.pages() >= least_pages && !device_is_too_small(); }  // once it is planned
  // The index of the plan to run a Program by. A Program may commit though that is not asked for, where all runs do.
  std::int32_t plan_of(std::int32_t program, bool commits) const;
  bool commits(std::int32_t plan) const;
  std::int64_t peak_memory_bytes() const;
  // What measuring may take of the host's memory before a run takes it: as much as the step has, as far as it is
  // allowed.
  std::int64_t probe_bytes() const;
  bool has_device() const { return machine.device_bytes > 0; }
  bool device_is_too_small() const { return has_device() && machine.device_bytes < min_device_bytes; }
};

// How plans hang together. By default the first Program settles a boundary for all.
struct PlanLinks {
  std::vector<std::int32_t> boundaries = {};  // by Program: whose boundary it shares; an earlier one, or its own
  std::int32_t speculative = -1;              // the Program that may be taken back
  std::vector<PieceId> speculated = {};       // what then goes back: clean before and after, old versions stand
  std::vector<bool> commits = {};             // by Program: its end is the end of a step, which may be committed

  std::size_t owner_of(std::size_t program) const;  // of its boundary
  bool may_commit(std::size_t program) const;
};

// `page_bytes` 0: huge pages where the budget is enough for a step in them, little of them is waste and not much more
// moves than in smaller ones; or else what page_bytes_for says. The budgets that are told are the lesser of both.
PlannedPrograms plan_programs(std::vector<const Program*> programs, const State& state, const RunChoices& choices,
                              KernelCache& kernels, std::int64_t vocab_size, std::int64_t page_bytes,
                              const PlanLinks& links = {});

// The same without plans: for the budgets.
PlannedPrograms lay_out_programs(std::vector<const Program*> programs, const State& state, const RunChoices& choices,
                                 KernelCache& kernels, std::int64_t vocab_size, std::int64_t page_bytes,
                                 const PlanLinks& links = {});

// The same Programs in the same pages, for choices that differ in what gives way, what is kept and where updates run.
void plan_again(PlannedPrograms& planned, const RunChoices& choices, const PlanLinks& links);

// Another plan of a Program; `commits`: one that commits, if the Program may. A second plan of a Program begins and
// ends at the boundary of the first one.
void add_plan(PlannedPrograms& planned, std::size_t program, std::int64_t pages, const RunChoices& choices,
              const PlanLinks& links, bool commits);

// One of the plans but the first once more, its stays without pages; see PlanRequest. Of one memory.
Plan unplaced_plan(const PlannedPrograms& planned, std::size_t plan, const RunChoices& choices, const PlanLinks& links);

// That the plan holds, and that those of its boundary may follow each other.
void check_plan(const PlannedPrograms& planned, std::size_t number, const PlanLinks& links);

// Where the updates of a plan run: ops and the parameters they update, on the host beside a device, and all others.
struct UpdateSides {
  std::int64_t host_ops = 0;
  std::int64_t host_parameters = 0;
  std::int64_t other_ops = 0;
  std::int64_t other_parameters = 0;
};
UpdateSides update_sides(const Plan& plan, const Program& program);

// Some plan goes past the host's memory.
bool moves_directly(const PlannedPrograms& planned);

// What a step writes to disk, by what outlives it and what does not: activations and gradients.
struct DiskWrites {
  std::int64_t state_bytes = 0;
  std::int64_t local_bytes = 0;
};
DiskWrites disk_writes(const Plan& plan, const Layout& layout);

// What lists of ops take of what is no page, about: in Programs, plans and what is watched.
std::int64_t list_bytes(const PlannedPrograms& planned);

// Why it does not fit, and what to do: the smallest budget, then `advice` (", or make … smaller").
std::string refusal(const PlannedPrograms& planned, std::string_view advice);

void require_fit(const PlannedPrograms& planned, std::string_view advice);  // throws DoesNotFit with the refusal

// Before the pages are taken: gives freed memory back and checks that what is resident leaves room for them. A virtual
// device's pages stand for another memory and count beside the budget.
void check_fixed_memory(const PlannedPrograms& planned);

}  // namespace spillway
