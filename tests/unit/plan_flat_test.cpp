// Where the stays of the host's plans lie: pages that follow each other, in every step, and whoever waits for them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "plan/flat.h"
#include "plan/trail.h"
#include "random_plans.h"
#include "under_sanitizer.h"

namespace spillway {
namespace {

constexpr std::uint64_t flat_seed = 7300;

struct Times {
  std::vector<double> starts;
  std::vector<double> ends;
  double seconds = 0;
};

// One instruction after the other, a millisecond each.
Times one_by_one(const Plan& plan) {
  Times times;
  for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
    times.starts.push_back(1e-3 * static_cast<double>(i));
    times.ends.push_back(1e-3 * static_cast<double>(i + 1));
  }
  times.seconds = 1e-3 * static_cast<double>(plan.instrs.size());
  return times;
}

// Times that no run has.
Times by_chance(const Plan& plan, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> second(0, 1);
  Times times;
  times.seconds = 0.5;
  for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
    times.starts.push_back(second(random));
    times.ends.push_back(times.starts.back() + second(random) * second(random));
  }
  return times;
}

Plan laid(Plan plan, const Layout& layout, const Times& times, const Ground& ground) {
  lay_flat(plan, layout, times.starts, times.ends, ground, 0.5);
  return plan;
}

Ground after(const Plan& plan, const Layout& layout, const Times& times) {
  return {layout, plan, times.ends, times.seconds};
}

// The step, laid by times that have nothing to do with it, follows itself, and so do a step that commits and one that
// only looks, which are laid to follow it.
TEST(PlanFlat, WhateverTheTimesPlansHoldAndFollowEachOther) {
  for (std::uint64_t seed = flat_seed; seed < flat_seed + cases(12); ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const std::int64_t in_memory = std::max(in_memory_pages(layout, 0), in_memory_pages(layout, 1));
    for (const std::int64_t pages : page_counts(smallest_pages(layout), in_memory)) {
      SCOPED_TRACE(fmt::format("seed {}, {} pages of {}", seed, pages, in_memory));
      const Plan bare = make_plan(layout, 0, pages, {.unplaced = true});
      const Times times = seed % 2 == 0 ? by_chance(bare, seed) : one_by_one(bare);
      const Plan first = laid(bare, layout, times, Ground(layout, bare));
      const Plan step = laid(bare, layout, times, after(first, layout, times));
      const Residents boundary = residents_of(step);
      const Ground ground = after(step, layout, times);
      const Plan bare_commit = make_plan(layout, 0, pages, {.commits = true, .entry = &boundary, .unplaced = true});
      const Plan commit = laid(bare_commit, layout, by_chance(bare_commit, seed), ground);
      const Plan bare_look = make_plan(layout, 1, pages, {.entry = &boundary, .unplaced = true});
      const Plan look = laid(bare_look, layout, by_chance(bare_look, seed), ground);
      ASSERT_EQ(verify(step, layout, programs.step()), "");
      ASSERT_EQ(verify(commit, layout, programs.step()), "");
      ASSERT_EQ(verify(look, layout, programs.look()), "");
      const Planned planned{programs, layout, programs.step(), step};
      EXPECT_EQ(fault_of(planned, {&step, &step, &step}, 3, seed), "");
      EXPECT_EQ(fault_of(planned, {&step, &commit, &look, &step}, 3, seed), "");
      // With one whose pages come as they may.
      const Plan as_it_comes = make_plan(layout, 1, pages, {.entry = &boundary});
      EXPECT_EQ(fault_of(planned, {&step, &as_it_comes, &step}, 3, seed), "");
    }
  }
}

// Pages attached and begun on in a step.
struct Attached {
  std::int64_t attached = 0;
  std::int64_t begun = 0;
};

// Of the fourth step of a plan that follows itself, first from the pages of its own entry.
Attached attached_in_a_step(const Plan& plan, const Layout& layout) {
  const PlanWaits waits(plan, layout);
  Trail trail(layout.bundles.size(), static_cast<std::size_t>(plan.pages));
  std::map<BundleId, std::vector<PageId>> held;
  for (const StayId id : plan.entry.stays) held[plan.stays[index_of(id)].bundle] = plan.stays[index_of(id)].pages;
  Attached attached;
  for (int step = 0; step < 4; ++step) {
    std::vector<std::vector<PageId>> entry;
    for (const StayId id : plan.entry.stays) entry.push_back(held[plan.stays[index_of(id)].bundle]);
    const Following following = trail.follow(waits, entry);
    attached = {};
    for (std::size_t s = 0; s < plan.stays.size(); ++s) {
      std::vector<PageId> pages;
      for (const PageId page : plan.stays[s].pages) pages.push_back(following.physical[index_of(page)]);
      const auto id = static_cast<StayId>(s);
      if (std::find(plan.exit.stays.begin(), plan.exit.stays.end(), id) != plan.exit.stays.end()) {
        held[plan.stays[s].bundle] = pages;
      }
      if (std::find(plan.entry.stays.begin(), plan.entry.stays.end(), id) != plan.entry.stays.end()) continue;
      attached.begun += std::ssize(pages);
      attached.attached += is_flat(pages) ? 0 : std::ssize(pages);
    }
  }
  return attached;
}

TEST(PlanFlat, FewPagesAreAttachedInAStepThatFollowsItself) {
  Attached flat;
  Attached as_they_come;
  for (std::uint64_t seed = flat_seed + 100; seed < flat_seed + 160; ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const std::int64_t smallest = smallest_pages(layout);
    const std::int64_t room = std::max<std::int64_t>(0, in_memory_pages(layout, 0) - smallest);
    for (const std::int64_t share : {10, 30, 60, 90}) {
      const std::int64_t pages = smallest + room * share / 100;
      const Plan bare = make_plan(layout, 0, pages, {.unplaced = true});
      const Times times = one_by_one(bare);
      Attached least{bare.pages * 1000, 0};
      Ground ground(layout, bare);
      for (int i = 0; i < 4; ++i) {
        const Plan plan = laid(bare, layout, times, ground);
        const Attached now = attached_in_a_step(plan, layout);
        if (now.attached < least.attached) least = now;
        ground = after(plan, layout, times);
      }
      const Attached before = attached_in_a_step(make_plan(layout, 0, pages, {}), layout);
      ASSERT_EQ(before.begun, least.begun);
      flat.attached += least.attached;
      flat.begun += least.begun;
      as_they_come.attached += before.attached;
    }
  }
  fmt::print("of {} pages {} are attached, {} as they come\n", flat.begun, flat.attached, as_they_come.attached);
  EXPECT_LT(5 * flat.attached, as_they_come.attached);
}

// What begins a stay seldom waits for its pages where times are known, and often where all accesses seem to end at
// once.
TEST(PlanFlat, StaysTakePagesThatWereLeftInTime) {
  std::int64_t late = 0;
  std::int64_t late_in_ignorance = 0;
  for (std::uint64_t seed = flat_seed + 200; seed < flat_seed + 230; ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const std::int64_t pages = (smallest_pages(layout) + in_memory_pages(layout, 0)) / 2;
    const Plan bare = make_plan(layout, 0, pages, {.unplaced = true});
    const Times at_once = one_by_one(bare);
    Times times = at_once;  // a move ends when thirty more instructions have begun
    for (std::size_t i = 0; i < bare.instrs.size(); ++i) {
      if (bare.instrs[i].kind != Instr::Kind::run) times.ends[i] += 30e-3;
    }
    const auto late_waits = [&](const Times& known) {
      Plan plan = laid(bare, layout, known, Ground(layout, bare));
      plan = laid(bare, layout, known, after(plan, layout, known));
      std::int64_t count = 0;
      for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
        for (const InstrId wait : plan.instrs[i].after) {
          const auto& before = bare.instrs[i].after;
          const bool for_pages = std::find(before.begin(), before.end(), wait) == before.end();
          count += for_pages && times.ends[index_of(wait)] > times.starts[i] ? 1 : 0;
        }
      }
      return count;
    };
    late += late_waits(times);
    late_in_ignorance += late_waits(at_once);
  }
  fmt::print("{} waits for pages, {} in ignorance\n", late, late_in_ignorance);
  EXPECT_LT(2 * late, late_in_ignorance);
}

}  // namespace
}  // namespace spillway
