// Plans of random Programs at several budgets, on one memory and on two, and what every interleaving of them computes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/tiers.h"
#include "plan/update_split.h"
#include "plan_interpreter.h"
#include "random_program.h"

namespace spillway {

inline constexpr std::uint64_t first_seed = 20240601;

struct Planned {
  const RandomPrograms& programs;
  const Layout& layout;
  const Program& program;
  Plan plan;
};

inline bool moves_directly(const Plan& plan) { return plan.direct.read_bytes + plan.direct.write_bytes > 0; }

// The step with a device, in few pages and in more, of both memories; where the disk is used, with a path of the
// device's own to it and without.
template <typename Visit>
void for_each_tiered_plan(std::uint64_t seed, const Visit& visit) {
  const RandomPrograms programs(seed);
  const Layout layout = programs.layout();
  const std::int64_t smallest = smallest_pages(layout);
  const std::int64_t room = std::max<std::int64_t>(0, in_memory_pages(layout, 0) - smallest);
  for (const std::int64_t device : {0, 15, 60}) {
    for (const std::int64_t host : {0, 25}) {
      const TierPages pages{smallest + room * device / 100, smallest_host_pages(layout) + room * host / 100};
      SCOPED_TRACE(fmt::format("seed {}, {} device pages, {} host pages", seed, pages.device, pages.host));
      const bool commits = (seed + static_cast<std::uint64_t>(device + host)) % 2 == 0;
      visit(Planned{programs, layout, programs.step(), make_tiered_plan(layout, 0, pages, {.commits = commits})});
      const PlanRequest request{.commits = commits, .direct = true};
      const Planned direct{programs, layout, programs.step(), make_tiered_plan(layout, 0, pages, request)};
      if (moves_directly(direct.plan)) visit(direct);
    }
  }
}

// The step with a device, some of its updates on the host: all, some groups, and every other segment, whatever it
// shares with its neighbours.
template <typename Visit>
void for_each_split_plan(std::uint64_t seed, const Visit& visit) {
  const RandomPrograms programs(seed, true);
  const Layout layout = programs.layout();
  const std::vector<UpdateGroup> groups = update_groups(programs.step(), layout, 0);
  std::vector<bool> alternating = updates_below(groups, layout, 0, 0);
  bool last = false;
  for (std::size_t s = 0; s < alternating.size(); ++s) {
    if (alternating[s]) last = alternating[s] = !last;
  }
  const std::int64_t smallest = smallest_pages(layout);
  const std::int64_t room = std::max<std::int64_t>(0, in_memory_pages(layout, 0) - smallest);
  for (const std::vector<bool>& below :
       {updates_below(groups, layout, 0, 0), updates_below(groups, layout, 0, 0.5), alternating}) {
    for (const std::int64_t share : {0, 20, 60}) {
      const TierPages pages{smallest + room * share / 100, smallest_host_pages(layout, 0, below) + room * share / 200};
      SCOPED_TRACE(fmt::format("seed {}, {} device pages, {} host pages", seed, pages.device, pages.host));
      const bool commits = (seed + static_cast<std::uint64_t>(share)) % 2 == 0;
      const PlanRequest request{.commits = commits, .below = &below, .direct = share == 20};
      visit(Planned{programs, layout, programs.step(), make_tiered_plan(layout, 0, pages, request)}, below);
    }
  }
}

// The step at several page counts, and the program that only looks, held to the same boundary.
template <typename Visit>
void for_each_plan(std::uint64_t seed, const Visit& visit) {
  const RandomPrograms programs(seed);
  const Layout layout = programs.layout();
  const std::int64_t in_memory = std::max(in_memory_pages(layout, 0), in_memory_pages(layout, 1));
  for (const std::int64_t pages : page_counts(smallest_pages(layout), in_memory)) {
    SCOPED_TRACE(fmt::format("seed {}, {} pages of {}", seed, pages, in_memory));
    const Planned step{programs, layout, programs.step(), make_plan(layout, 0, pages, {})};
    const Residents boundary = residents_of(step.plan);
    visit(step);
    visit(Planned{programs, layout, programs.look(), make_plan(layout, 1, pages, {.entry = &boundary})});
    visit(Planned{programs, layout, programs.step(), make_plan(layout, 0, pages, {.commits = true})});
    std::vector<bool> pinned(layout.bundles.size());
    for (std::size_t b = 0; b < pinned.size(); ++b) pinned[b] = (seed + b * b) % 3 == 0;
    visit(Planned{programs, layout, programs.step(), make_plan(layout, 0, pages, {.pinned = &pinned})});
  }
}

inline std::string verify(const Planned& planned, const Plan& plan) {
  return verify(plan, planned.layout, planned.program);
}

// What some interleavings do wrong when these plans follow each other; empty when none was found.
inline std::string fault_of(const Planned& planned, const std::vector<const Plan*>& plans, int runs,
                            std::uint64_t seed) {
  PlanInterpreter interpreter(plans, planned.layout, planned.programs.programs());
  for (int i = 0; i < runs; ++i) {
    const std::string fault = interpreter.run(seed + static_cast<std::uint64_t>(i));
    if (!fault.empty()) return fault;
  }
  return {};
}

// Those of one memory, and of two for some seeds.
template <typename Visit>
void for_each_plan_of_any_memory(std::uint64_t seed, const Visit& visit) {
  for_each_plan(seed, visit);
  if (seed % 3 == 0) for_each_tiered_plan(seed, visit);
  if (seed % 3 == 1) for_each_split_plan(seed, [&](const Planned& planned, const auto&) { visit(planned); });
}

// Alone and, where it can, before and after the plan it was made from.
inline std::string fault_of(const Planned& planned, const Plan& plan, int runs, std::uint64_t seed) {
  std::vector<const Plan*> plans{&plan};
  if (verify_follows(planned.plan, plan, planned.layout).empty()) plans.insert(plans.begin(), &planned.plan);
  if (verify_follows(plan, planned.plan, planned.layout).empty()) plans.push_back(&planned.plan);
  const std::string fault = fault_of(planned, {&plan}, runs / 2, seed);
  return fault.empty() ? fault_of(planned, plans, runs - runs / 2, seed) : fault;
}

// Whether an instruction changes the bytes of a stay.
inline bool changes(const Planned& planned, const Instr& instr, StayId stay) {
  const BundleId bundle = planned.plan.stays[index_of(stay)].bundle;
  if (instr.kind == Instr::Kind::run &&
      planned.plan.memory_of(instr.lane) != planned.plan.stays[index_of(stay)].memory) {
    return false;
  }
  if (instr.kind != Instr::Kind::run) {
    const bool named = std::find(instr.stays.begin(), instr.stays.end(), stay) != instr.stays.end();
    return named && fills(instr.kind, planned.plan.stays[index_of(stay)].memory);
  }
  const auto& places = planned.layout.programs[static_cast<std::size_t>(planned.plan.program)].places;
  const std::vector<Operand>& writes = planned.program.ops[index_of(instr.op)].writes;
  return std::any_of(writes.begin(), writes.end(),
                     [&](const Operand& write) { return places[index_of(write.first)].bundle == bundle; });
}

}  // namespace spillway
