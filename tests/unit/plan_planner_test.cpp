#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <span>

#include "plan/plan.h"
#include "random_program.h"

namespace spillway {
namespace {

constexpr std::uint64_t planner_seed = 7000;

std::set<BundleId> bundles_of(const Plan& plan, const Boundary& boundary) {
  std::set<BundleId> bundles;
  for (const StayId stay : boundary.stays) bundles.insert(plan.stays[index_of(stay)].bundle);
  return bundles;
}

std::int64_t moves_of(const Plan& plan, Instr::Kind kind) {
  return std::count_if(plan.instrs.begin(), plan.instrs.end(), [&](const Instr& i) { return i.kind == kind; });
}

std::int64_t moved_bytes(const Plan& plan, const Layout& layout, Instr::Kind kind) {
  std::int64_t bytes = 0;
  for (const Instr& instr : plan.instrs) {
    if (instr.kind != kind) continue;
    bytes += layout.bundles[index_of(plan.stays[index_of(instr.stays.front())].bundle)].bytes;
  }
  return bytes;
}

std::int64_t pages_at(const Plan& plan, const Boundary& boundary) {
  std::int64_t pages = 0;
  for (const StayId stay : boundary.stays) pages += std::ssize(plan.stays[index_of(stay)].pages);
  return pages;
}

// What loading and saving need free at a boundary.
std::int64_t largest_state_bundle_pages(const Layout& layout) {
  std::int64_t pages = 0;
  for (std::int32_t b = 0; b < layout.state_bundles; ++b) {
    pages = std::max(pages, layout.pages_of(static_cast<BundleId>(b)));
  }
  return pages;
}

template <typename Visit>
void for_each_step_plan(const Visit& visit) {
  for (std::uint64_t seed = planner_seed; seed < planner_seed + 40; ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    for (const std::int64_t pages : page_counts(smallest_pages(layout), in_memory_pages(layout, 0))) {
      SCOPED_TRACE(fmt::format("seed {}, {} pages", seed, pages));
      visit(programs, layout, make_plan(layout, 0, pages, {}));
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PlanPlanner, NothingMovesWhereEverythingFits) {
  for (std::uint64_t seed = planner_seed; seed < planner_seed + 100; ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const std::int64_t pages = std::max(in_memory_pages(layout, 0), in_memory_pages(layout, 1));
    const Plan step = make_plan(layout, 0, pages, {});
    const Residents residents = residents_of(step);
    const Plan look = make_plan(layout, 1, pages, {.entry = &residents});
    for (const Plan* plan : {&step, &look}) {
      EXPECT_TRUE(plan->lanes[1].empty() && plan->lanes[2].empty()) << "seed " << seed;
      EXPECT_EQ(plan->traffic.read_bytes + plan->traffic.write_bytes, 0);
      EXPECT_EQ(std::ssize(plan->entry.stays), layout.state_bundles) << "all state is in memory";
    }
    EXPECT_EQ(disk_slots_for(layout, std::vector{step, look}), 0);
  }
}

TEST(PlanPlanner, SomethingMovesInTheSmallestBudget) {
  int moving = 0;
  for (std::uint64_t seed = planner_seed; seed < planner_seed + 40; ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const std::int64_t smallest = smallest_pages(layout);
    if (smallest >= in_memory_pages(layout, 0)) continue;
    const Plan plan = make_plan(layout, 0, smallest, {});
    EXPECT_LE(plan.peak_pages, smallest);
    EXPECT_GT(disk_slots_for(layout, std::vector{plan}), 0) << "seed " << seed;
    moving += plan.traffic.read_bytes > 0 ? 1 : 0;
  }
  EXPECT_GT(moving, 30);
}

TEST(PlanPlanner, FewerPagesThanALargestSegmentAreABrokenInvariant) {
  const RandomPrograms programs(planner_seed);
  const Layout layout = programs.layout();
  std::int64_t largest = 0;
  for (const auto& uses : layout.programs[0].uses) {
    std::int64_t pages = 0;
    for (const Use& use : uses) pages += layout.pages_of(use.bundle);
    largest = std::max(largest, pages);
  }
  EXPECT_GE(smallest_pages(layout), largest);
  EXPECT_DEATH(make_plan(layout, 0, largest - 1, {}), "does not fit");
}

TEST(PlanPlanner, TrafficIsTheSumOfTheMoves) {
  for_each_step_plan([](const RandomPrograms&, const Layout& layout, const Plan& plan) {
    EXPECT_EQ(plan.traffic.read_bytes, moved_bytes(plan, layout, Instr::Kind::read));
    EXPECT_EQ(plan.traffic.write_bytes, moved_bytes(plan, layout, Instr::Kind::write));
    EXPECT_EQ(std::ssize(plan.lanes[1]), moves_of(plan, Instr::Kind::read));
    EXPECT_EQ(std::ssize(plan.lanes[2]), moves_of(plan, Instr::Kind::write));
  });
}

TEST(PlanPlanner, TheExitHoldsWhatTheEntryHoldsAndLeavesRoomToVisit) {
  for_each_step_plan([](const RandomPrograms&, const Layout& layout, const Plan& plan) {
    EXPECT_EQ(bundles_of(plan, plan.entry), bundles_of(plan, plan.exit));
    const std::int64_t visited = std::min<std::int64_t>(visited_bundles, layout.state_bundles);
    EXPECT_LE(pages_at(plan, plan.exit) + visited * largest_state_bundle_pages(layout), plan.pages);
    EXPECT_LE(plan.peak_pages, plan.pages);
  });
}

TEST(PlanPlanner, OpsRunInTheOrderOfTheProgramEachOnce) {
  for_each_step_plan([](const RandomPrograms& programs, const Layout&, const Plan& plan) {
    ASSERT_EQ(plan.lanes[0].size(), programs.step().ops.size());
    for (std::size_t i = 0; i < plan.lanes[0].size(); ++i) {
      EXPECT_EQ(index_of(plan.instrs[index_of(plan.lanes[0][i])].op), i);
    }
  });
}

TEST(PlanPlanner, HoldsExactlyTheResidentsItIsGiven) {
  for_each_step_plan([](const RandomPrograms& programs, const Layout& layout, const Plan& step) {
    const std::set<BundleId> boundary = bundles_of(step, step.entry);
    const Residents residents = residents_of(step);
    for (const std::int32_t program : {0, 1}) {
      const Plan plan = make_plan(layout, program, step.pages, {.entry = &residents});
      EXPECT_EQ(bundles_of(plan, plan.entry), boundary);
      EXPECT_EQ(bundles_of(plan, plan.exit), boundary);
      for (const Plan* before : {&step, &plan}) {
        for (const Plan* after : {&step, &plan}) EXPECT_EQ(verify_follows(*before, *after, layout), "");
      }
      EXPECT_EQ(verify(plan, layout, *programs.programs()[static_cast<std::size_t>(program)]), "");
    }
    const Residents nobody;
    const Plan bare = make_plan(layout, 0, step.pages, {.entry = &nobody});
    EXPECT_TRUE(bare.entry.stays.empty() && bare.exit.stays.empty());
    EXPECT_EQ(verify(bare, layout, programs.step()), "");
  });
}

TEST(PlanPlanner, IsAFunctionOfWhatItIsGiven) {
  const RandomPrograms programs(planner_seed);
  const Layout layout = programs.layout();
  const std::int64_t pages = smallest_pages(layout) + 3;
  EXPECT_EQ(dump(make_plan(layout, 0, pages, {}), layout, programs.step()),
            dump(make_plan(layout, 0, pages, {}), layout, programs.step()));
}

TEST(PlanPlanner, ACommitWritesWhatAStepLeavesInMemoryAndNextToNothingElse) {
  std::int64_t plain_bytes = 0;  // with what the boundary holds dirty
  std::int64_t committing_bytes = 0;
  for (std::uint64_t seed = planner_seed; seed < planner_seed + 40; ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const Plan plain = make_plan(layout, 0, smallest_pages(layout), {});
    const Plan committing = make_plan(layout, 0, smallest_pages(layout), {.commits = true});
    EXPECT_EQ(verify(committing, layout, programs.step()), "");
    EXPECT_EQ(moves_of(committing, Instr::Kind::commit), 1);
    const auto& dirty = committing.exit.dirty;
    EXPECT_EQ(std::count(dirty.begin(), dirty.end(), true), 0);
    plain_bytes += plain.traffic.read_bytes + plain.traffic.write_bytes;
    for (std::size_t i = 0; i < plain.exit.stays.size(); ++i) {
      const Stay& stay = plain.stays[index_of(plain.exit.stays[i])];
      if (plain.exit.dirty[i]) plain_bytes += layout.bundles[index_of(stay.bundle)].bytes;
    }
    committing_bytes += committing.traffic.read_bytes + committing.traffic.write_bytes;
  }
  EXPECT_LE(static_cast<double>(committing_bytes), 1.01 * static_cast<double>(plain_bytes));
}

// State for so many pages at most.
std::vector<bool> state_to_pin(const Layout& layout, std::int64_t room) {
  std::vector<bool> pinned(layout.bundles.size(), false);
  for (std::int32_t b = 0; b < layout.state_bundles; ++b) {
    const std::int64_t of_bundle = layout.pages_of(static_cast<BundleId>(b));
    if (of_bundle > room) continue;
    room -= of_bundle;
    pinned[static_cast<std::size_t>(b)] = true;
  }
  return pinned;
}

TEST(PlanPlanner, PinnedStateNeverMovesWhereThereIsRoomForIt) {
  std::int64_t moved = 0;  // of the same state, when it is not pinned
  for (std::uint64_t seed = planner_seed; seed < planner_seed + 40; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const std::int64_t pages = (smallest_pages(layout) + in_memory_pages(layout, 0)) / 2;
    const std::vector<bool> pinned = state_to_pin(layout, pages - smallest_pages(layout));
    const auto moves = [&](const Plan& plan) {
      return std::count_if(plan.instrs.begin(), plan.instrs.end(), [&](const Instr& instr) {
        return instr.kind != Instr::Kind::run && pinned[index_of(plan.stays[index_of(instr.stays.front())].bundle)];
      });
    };
    const Plan plan = make_plan(layout, 0, pages, {.pinned = &pinned});
    EXPECT_EQ(verify(plan, layout, programs.step()), "");
    EXPECT_EQ(moves(plan), 0);
    moved += moves(make_plan(layout, 0, pages, {}));
  }
  EXPECT_GT(moved, 0);
}

// Of what is not used by the segment that runs next.
std::int64_t reads_ahead(const Plan& plan, const Layout& layout) {
  std::int64_t ahead = 0;
  std::int32_t segment = 0;
  for (const Instr& instr : plan.instrs) {
    const Segments& segments = layout.programs[0].segments;
    while (instr.kind == Instr::Kind::run && segment < segments.count() &&
           static_cast<std::int32_t>(index_of(instr.op)) >= segments.begin[static_cast<std::size_t>(segment)]) {
      ++segment;
    }
    if (instr.kind != Instr::Kind::read || segment >= segments.count()) continue;
    const auto& uses = layout.programs[0].uses[static_cast<std::size_t>(segment)];
    const BundleId bundle = plan.stays[index_of(instr.stays.front())].bundle;
    ahead += std::none_of(uses.begin(), uses.end(), [&](const Use& use) { return use.bundle == bundle; }) ? 1 : 0;
  }
  return ahead;
}

// A step over tensors of a page each, made by hand.
class PagedStep {
 public:
  const Program& step() const { return step_; }
  Layout layout() const {
    const Program* const program = &step_;
    return lay_out({&program, 1}, state_, 4096);
  }

 protected:
  ValueId add_value(const Value& value) {
    step_.values.push_back(value);
    return static_cast<ValueId>(step_.values.size() - 1);
  }

  // Its version on entry. Pieces are numbered as tensors are added.
  ValueId add_tensor() {
    Tensor tensor;
    tensor.name = fmt::format("tensor{}", tensors_);
    tensor.rows = 16;
    tensor.cols = 64;
    state_.add(tensor, reduction_block_elements);
    return add_value({{DType::f32, 16, 64}, ValueKind::state_in, static_cast<PieceId>(tensors_++)});
  }

  // `kind`: of the row that it makes.
  void look_at(ValueId version, std::int32_t segment, ValueKind kind) {
    add_op(mix_spec, version, add_value({{DType::f32, 1, 64}, kind}), segment);
  }

  ValueId change(ValueId version, std::int32_t segment) {
    const PieceId piece = step_.values[index_of(version)].piece;
    const ValueId changed = add_value({{DType::f32, 16, 64}, ValueKind::state_out, piece});
    add_op(in_place_spec, version, changed, segment);
    return changed;
  }

 private:
  void add_op(const OpSpec& spec, ValueId read, ValueId written, std::int32_t segment) {
    step_.ops.push_back({&spec, {}, {{read, 1}}, {{written, 1}}, {}});
    step_.ops.back().label.layer = segment;
  }

  State state_;
  Program step_;
  int tensors_ = 0;
};

// A tensor for each op, which comes round once a step.
class PassingState : public PagedStep {
 public:
  // `changes`: the op changes it; `counts`: and one more, which is the same for all.
  explicit PassingState(int tensors, bool changes = false, bool counts = false) {
    ValueId counter = counts ? add_tensor() : ValueId::none;
    add_value({{DType::f32, 1, 64}, ValueKind::input});
    for (int t = 0; t < tensors; ++t) {
      const ValueId tensor = add_tensor();
      if (changes) {
        change(tensor, t);
      } else {
        look_at(tensor, t, ValueKind::output);
      }
      if (counts) counter = change(counter, t);
    }
  }
};

TEST(PlanPlanner, ReadsAheadAlsoWherePinnedStateHasMostOfThePages) {
  const PassingState programs(24);
  const Layout layout = programs.layout();
  for (const std::int64_t room : {0, 8}) {
    const std::vector<bool> pinned = state_to_pin(layout, room);
    const Plan plan = make_plan(layout, 0, 14, {.pinned = &pinned});
    EXPECT_EQ(verify(plan, layout, programs.step()), "");
    // Of those that move, all but the few at the start of a step, which are read at the end of the one before.
    EXPECT_GE(reads_ahead(plan, layout), moves_of(plan, Instr::Kind::read) / 2) << room << " pages are pinned";
  }
}

// Of all pages that a stay leaves to another one, the fewest ops that run between.
std::int64_t least_runs_between_stays(const Plan& plan) {
  std::vector<std::int64_t> left(static_cast<std::size_t>(plan.pages), -1);  // by page, runs until its last use
  std::int64_t least = std::ssize(plan.instrs);
  std::int64_t runs = 0;
  for (const Instr& instr : plan.instrs) {
    for (const StayId stay : instr.begins) {
      for (const PageId page : plan.stays[index_of(stay)].pages) {
        if (left[index_of(page)] >= 0) least = std::min(least, runs - left[index_of(page)]);
      }
    }
    if (instr.kind != Instr::Kind::run) continue;
    ++runs;
    for (const StayId stay : instr.stays) {
      for (const PageId page : plan.stays[index_of(stay)].pages) left[index_of(page)] = runs;
    }
  }
  return least;
}

TEST(PlanPlanner, WhatWasChangedLastGivesWayAfterAllElse) {
  const PassingState programs(24, true);
  const Layout layout = programs.layout();
  for (const std::int64_t room : {0, 4}) {
    const std::vector<bool> pinned = state_to_pin(layout, room);
    const auto least = [&](Policy policy, double settling) {
      const Plan plan = make_plan(layout, 0, 16, {.policy = policy, .settling = settling, .pinned = &pinned});
      EXPECT_EQ(verify(plan, layout, programs.step()), "");
      return least_runs_between_stays(plan);
    };
    EXPECT_GE(least(Policy::automatic, 0.25), (16 - room) / 4) << room << " pages are pinned";
    EXPECT_GE(least(Policy::automatic, 0.5), (16 - room) / 2) << room << " pages are pinned";
    EXPECT_EQ(least(Policy::automatic, 0), 0) << room << " pages are pinned";
    EXPECT_EQ(least(Policy::belady, 0.5), 0) << room << " pages are pinned";
  }
}

// A bundle that every op changes has its pages once among those changed last.
TEST(PlanPlanner, WhatIsChangedOverAndOverCountsOnce) {
  const PassingState programs(24, true, true);
  const Layout layout = programs.layout();
  const Plan plan = make_plan(layout, 0, 24, {});
  EXPECT_EQ(verify(plan, layout, programs.step()), "");
  EXPECT_GE(least_runs_between_stays(plan), 24 / 4 - 1);
}

// Looks at weights, one after the other, then changes all sums at once, as a head does; in the end it looks at each sum
// alone, so that it is a bundle of its own.
class WeightsAndSums : public PagedStep {
 public:
  WeightsAndSums(int weights, int sums) {
    std::int32_t segment = 0;
    std::vector<ValueId> newest;
    for (int t = 0; t < weights + sums; ++t) newest.push_back(add_tensor());
    const std::span all(newest);
    for (const ValueId weight : all.first(static_cast<std::size_t>(weights))) {
      look_at(weight, segment++, ValueKind::local);
    }
    for (ValueId& sum : all.last(static_cast<std::size_t>(sums))) sum = change(sum, segment);
    for (const ValueId sum : all.last(static_cast<std::size_t>(sums))) look_at(sum, ++segment, ValueKind::local);
  }
};

// To read the last weight at the start a sum would move twice; a little later the first weight only has to be dropped.
TEST(PlanPlanner, WhatHasToBeWrittenGivesWayToNoReadThatMayBeMadeLater) {
  constexpr int weights = 10;
  constexpr int sums = 16;
  const WeightsAndSums programs(weights, sums);
  const Layout layout = programs.layout();
  const auto bundle_of = [&](int tensor) { return layout.piece_places[static_cast<std::size_t>(tensor)].bundle; };
  Residents entry;  // with room to visit two
  for (int t = 0; t < weights + sums; ++t) {
    if (t < weights - 2 || t >= weights) entry.push_back({bundle_of(t), t >= weights});
  }
  const auto plan_of = [&](Policy policy) {
    Plan plan = make_plan(layout, 0, weights + sums, {.policy = policy, .entry = &entry});
    EXPECT_EQ(verify(plan, layout, programs.step()), "");
    return plan;
  };
  const auto run_of = [](const Plan& plan, int op) {
    return std::ranges::find(plan.instrs, static_cast<OpId>(op), &Instr::op);
  };
  const auto writes_before_the_sums_change = [&](const Plan& plan) {
    return std::count_if(plan.instrs.begin(), run_of(plan, weights),
                         [](const Instr& instr) { return instr.kind == Instr::Kind::write; });
  };
  const Plan plan = plan_of(Policy::automatic);
  EXPECT_EQ(writes_before_the_sums_change(plan), 0);
  EXPECT_GT(writes_before_the_sums_change(plan_of(Policy::belady)), 0);
  const auto reads_last_weight = [&](const Instr& instr) {
    return instr.kind == Instr::Kind::read &&
           plan.stays[index_of(instr.stays.front())].bundle == bundle_of(weights - 1);
  };
  EXPECT_TRUE(std::any_of(plan.instrs.begin(), run_of(plan, weights - 2), reads_last_weight))
      << "still ahead of its use";
}

TEST(PlanPlanner, ACommitWritesEachChangedBundleOnceWhereEverythingFits) {
  const RandomPrograms programs(planner_seed);
  const Layout layout = programs.layout();
  const Plan plan = make_plan(layout, 0, in_memory_pages(layout, 0), {.commits = true});
  std::set<BundleId> changed;
  for (const auto& uses : layout.programs[0].uses) {
    for (const Use& use : uses) {
      if (use.writes && layout.bundles[index_of(use.bundle)].state) changed.insert(use.bundle);
    }
  }
  ASSERT_FALSE(changed.empty());
  EXPECT_EQ(moves_of(plan, Instr::Kind::read), 0);
  EXPECT_EQ(moves_of(plan, Instr::Kind::write), std::ssize(changed));
}

// Replays the plan and counts slots as the executor takes them: the old version of a bundle is given back when the
// write of the new one is done, here as late as the writes in flight allow.
TEST(PlanPlanner, CountsEnoughSlots) {
  for_each_step_plan([](const RandomPrograms&, const Layout& layout, const Plan& plan) {
    std::vector<bool> stored(layout.bundles.size(), false);
    std::vector<std::int64_t> pending;  // pages of old versions whose writes are under way
    std::int64_t used = 0;
    std::int64_t most = 0;
    for (std::int32_t b = 0; b < layout.state_bundles; ++b) {  // at worst a load has written everything
      stored[static_cast<std::size_t>(b)] = true;
      used += layout.pages_of(static_cast<BundleId>(b));
    }
    for (const InstrId id : plan.lanes[static_cast<std::size_t>(LaneId::write)]) {
      const BundleId bundle = plan.stays[index_of(plan.instrs[index_of(id)].stays.front())].bundle;
      const bool local = !layout.bundles[index_of(bundle)].state;
      if (local && stored[index_of(bundle)]) continue;
      used += layout.pages_of(bundle);
      if (!local) pending.push_back(layout.pages_of(bundle));
      stored[index_of(bundle)] = true;
      most = std::max(most, used);
      if (std::ssize(pending) < max_writes_in_flight) continue;
      used -= pending.front();
      pending.erase(pending.begin());
    }
    EXPECT_LE(most, disk_slots_for(layout, std::vector{plan}));
  });
}

}  // namespace
}  // namespace spillway
