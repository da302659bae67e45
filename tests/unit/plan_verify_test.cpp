// Plans are held to what they mean: every interleaving that the waits allow computes what the Program says, and the
// verifier accepts no plan for which one does not.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>

#include "plan/plan.h"
#include "plan/tiers.h"
#include "plan/update_split.h"
#include "plan_interpreter.h"
#include "random_program.h"

namespace spillway {
namespace {

constexpr std::uint64_t first_seed = 20240601;

struct Planned {
  const RandomPrograms& programs;
  const Layout& layout;
  const Program& program;
  Plan plan;
};

// The step with a device, in few pages and in more, of both memories.
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
      const PlanRequest request{.commits = commits, .below = &below};
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

std::string verify(const Planned& planned, const Plan& plan) { return verify(plan, planned.layout, planned.program); }

// What some interleavings do wrong when these plans follow each other; empty when none was found.
std::string fault_of(const Planned& planned, const std::vector<const Plan*>& plans, int runs, std::uint64_t seed) {
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

bool commits_of(const Plan& plan) {
  return std::any_of(plan.instrs.begin(), plan.instrs.end(),
                     [](const Instr& instr) { return instr.kind == Instr::Kind::commit; });
}

// Alone and, where it can, before and after the plan it was made from.
std::string fault_of(const Planned& planned, const Plan& plan, int runs, std::uint64_t seed) {
  std::vector<const Plan*> plans{&plan};
  if (verify_follows(planned.plan, plan, planned.layout).empty()) plans.insert(plans.begin(), &planned.plan);
  if (verify_follows(plan, planned.plan, planned.layout).empty()) plans.push_back(&planned.plan);
  const std::string fault = fault_of(planned, {&plan}, runs / 2, seed);
  return fault.empty() ? fault_of(planned, plans, runs - runs / 2, seed) : fault;
}

TEST(PlanVerify, AcceptsWhatThePlannerMakesAndEveryInterleavingOfItIsRight) {
  for (std::uint64_t seed = first_seed; seed < first_seed + 40; ++seed) {
    for_each_plan_of_any_memory(seed, [&](const Planned& planned) {
      EXPECT_EQ(verify(planned, planned.plan), "");
      EXPECT_EQ(fault_of(planned, {&planned.plan}, 6, seed), "") << dump(planned.plan, planned.layout, planned.program);
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PlanVerify, PlansFollowEachOtherWithNoBarrierBetween) {
  for (std::uint64_t seed = first_seed + 500; seed < first_seed + 506; ++seed) {
    const Plan* step = nullptr;
    Plan kept;
    for_each_plan(seed, [&](const Planned& planned) {
      if (planned.plan.program == 0) {
        kept = planned.plan;
        step = &kept;
        if (!commits_of(kept)) return;
        EXPECT_EQ(fault_of(planned, {step, step, step}, 3, seed), "");
        return;
      }
      const Residents boundary = residents_of(*step);
      const Plan commit = make_plan(planned.layout, 0, step->pages, {.commits = true, .entry = &boundary});
      EXPECT_EQ(verify(commit, planned.layout, planned.programs.step()), "");
      const Plan* look = &planned.plan;
      for (const auto& plans : {std::vector{step, step, step},
                                {step, look, step},
                                {look, look, step},
                                {look, step},
                                {step, &commit, step, &commit},
                                {&commit, look, &commit}}) {
        for (std::size_t i = 1; i < plans.size(); ++i) {
          EXPECT_EQ(verify_follows(*plans[i - 1], *plans[i], planned.layout), "");
        }
        EXPECT_EQ(fault_of(planned, plans, 3, seed), "");
      }
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PlanVerify, PlansWithADeviceFollowEachOtherWithNoBarrierBetween) {
  for (std::uint64_t seed = first_seed + 600; seed < first_seed + 606; ++seed) {
    for_each_tiered_plan(seed, [&](const Planned& planned) {
      const TierPages pages{planned.plan.device_pages, planned.plan.pages};
      const TierResidents boundary = tier_residents_of(planned.plan);
      const Plan commit = make_tiered_plan(planned.layout, 0, pages, {.commits = true}, &boundary);
      const Plan look = make_tiered_plan(planned.layout, 1, pages, {}, &boundary);
      EXPECT_EQ(verify(commit, planned.layout, planned.programs.step()), "");
      EXPECT_EQ(verify(look, planned.layout, planned.programs.look()), "");
      const Plan* step = &planned.plan;
      for (const auto& plans : {std::vector{step, step, step},
                                {step, &look, step},
                                {&look, &look, step},
                                {step, &commit, step, &commit},
                                {&commit, &look, &commit}}) {
        for (std::size_t i = 1; i < plans.size(); ++i) {
          EXPECT_EQ(verify_follows(*plans[i - 1], *plans[i], planned.layout), "");
        }
        EXPECT_EQ(fault_of(planned, plans, 2, seed), "");
      }
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PlanVerify, PlansThatUpdateOnTheHostFollowEachOtherWithNoBarrierBetween) {
  std::int64_t updates = 0;
  for (std::uint64_t seed = first_seed + 700; seed < first_seed + 712; ++seed) {
    for_each_split_plan(seed, [&](const Planned& planned, const std::vector<bool>& below) {
      EXPECT_EQ(verify(planned, planned.plan), "");
      updates += std::ssize(planned.plan.lanes[static_cast<std::size_t>(LaneId::update)]);
      const TierPages pages{planned.plan.device_pages, planned.plan.pages};
      const TierResidents boundary = tier_residents_of(planned.plan);
      const PlanRequest request{.commits = true, .below = &below};
      const Plan commit = make_tiered_plan(planned.layout, 0, pages, request, &boundary);
      const Plan on_device = make_tiered_plan(planned.layout, 0, pages, {}, &boundary);
      const Plan look = make_tiered_plan(planned.layout, 1, pages, {}, &boundary);
      EXPECT_EQ(verify(commit, planned.layout, planned.programs.step()), "");
      EXPECT_EQ(verify(on_device, planned.layout, planned.programs.step()), "");
      const Plan* step = &planned.plan;
      for (const auto& plans : {std::vector{step, step, step},
                                {step, &look, step},
                                {step, &on_device, step},
                                {step, &commit, step, &commit}}) {
        for (std::size_t i = 1; i < plans.size(); ++i) {
          EXPECT_EQ(verify_follows(*plans[i - 1], *plans[i], planned.layout), "");
        }
        EXPECT_EQ(fault_of(planned, plans, 2, seed), "");
      }
    });
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(updates, 500);
}

// In pages of the host alone where there are none of a device; `of`: at the boundary of this plan.
Plan plan_in(const Layout& layout, std::int32_t program, const TierPages& pages, const Plan* of) {
  if (pages.device > 0) {
    const TierResidents boundary = of != nullptr ? tier_residents_of(*of) : TierResidents();
    return make_tiered_plan(layout, program, pages, {}, of != nullptr ? &boundary : nullptr);
  }
  const Residents boundary = of != nullptr ? residents_of(*of) : Residents();
  return make_plan(layout, program, pages.host, {.entry = of != nullptr ? &boundary : nullptr});
}

// What a plan does not find though it is in the host at its boundary is of no use to it, and whoever asks is told so.
void expect_dead_where_not_found(const Plan& owner, const Plan& plan, const Layout& layout) {
  const std::vector<bool> dead_below = dead_below_on_entry(plan, layout);
  const auto& dead = layout.programs[static_cast<std::size_t>(plan.program)].dead_on_entry;
  std::vector<bool> found(layout.bundles.size(), false);
  for (const StayId id : plan.entry.stays) {
    const Stay& stay = plan.stays[index_of(id)];
    if (stay.memory == MemoryId::host) found[index_of(stay.bundle)] = true;
  }
  for (const Held& held : residents_of(owner)) {
    const std::size_t b = index_of(held.bundle);
    EXPECT_TRUE(found[b] || dead[b] || dead_below[b]) << "bundle " << b << " of program " << plan.program;
  }
}

TEST(PlanVerify, StateThatNoCommitHoldsIsMadeUsedUpAndForgotten) {
  for (std::uint64_t seed = first_seed + 800; seed < first_seed + 815; ++seed) {
    const RandomPrograms programs(seed, false, true);
    const Layout layout = programs.layout();
    const std::int64_t smallest = smallest_pages(layout);
    const std::int64_t host = smallest_host_pages(layout);
    const std::int64_t room = std::max<std::int64_t>(0, in_memory_pages(layout, 0) - smallest);
    for (const TierPages& pages :
         {TierPages{0, smallest}, TierPages{0, smallest + room / 4}, TierPages{smallest, host},
          TierPages{smallest + room / 4, host}, TierPages{smallest + room / 2, host + room / 4},
          TierPages{smallest + room / 4, host + 2 * room}}) {
      SCOPED_TRACE(fmt::format("seed {}, {} device pages, {} host pages", seed, pages.device, pages.host));
      const Plan step = plan_in(layout, 0, pages, nullptr);
      const Plan look = plan_in(layout, 1, pages, &step);
      const Plan next = plan_in(layout, 2, pages, &step);
      const Plan flush = plan_in(layout, 3, pages, &step);
      for (const Plan* plan : {&step, &look, &next, &flush}) {
        EXPECT_EQ(verify(*plan, layout, *programs.programs()[static_cast<std::size_t>(plan->program)]), "");
        if (plan != &step) expect_dead_where_not_found(step, *plan, layout);
      }
      const Planned planned{programs, layout, programs.step(), step};
      for (const auto& plans : {std::vector{&step, &next, &next, &flush, &look, &step},
                                {&step, &flush, &step, &flush},
                                {&step, &look, &step, &next}}) {
        for (std::size_t i = 1; i < plans.size(); ++i) EXPECT_EQ(verify_follows(*plans[i - 1], *plans[i], layout), "");
        EXPECT_EQ(fault_of(planned, plans, 2, seed), "");
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

// Seeds at which a bundle was evicted and came back to other pages while ops still read it at its one address.
TEST(PlanVerify, ABundleDoesNotComeBackUnderItsReaders) {
  for (const std::uint64_t seed : {20240737U}) {
    for_each_plan(seed, [&](const Planned& planned) {
      EXPECT_EQ(verify(planned, planned.plan), "");
      EXPECT_EQ(fault_of(planned, planned.plan, 30, seed), "");
    });
  }
}

// --- Happens-before by brute force ---

// Whether instruction `before` is done when `after` starts, in every interleaving, though it does not wait for it.
class Order {
 public:
  explicit Order(const Plan& plan) : edges_(2 * plan.instrs.size()) {
    for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
      edges_[start(i)].push_back(done(i));
      for (const InstrId wait : plan.instrs[i].after) edges_[done(index_of(wait))].push_back(start(i));
    }
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      for (std::size_t k = 1; k < plan.lanes[lane].size(); ++k) {
        const std::size_t before = index_of(plan.lanes[lane][k - 1]);
        const std::size_t after = index_of(plan.lanes[lane][k]);
        edges_[start(before)].push_back(start(after));
        edges_[done(before)].push_back(done(after));
        const bool commits = plan.instrs[after].kind == Instr::Kind::commit;
        if (commits || runs_ops(static_cast<LaneId>(lane))) edges_[done(before)].push_back(start(after));
      }
    }
  }

  bool holds(std::size_t before, std::size_t after) const {
    std::vector<bool> seen(edges_.size(), false);
    std::vector<std::size_t> open{done(before)};
    while (!open.empty()) {
      const std::size_t node = open.back();
      open.pop_back();
      if (node == start(after)) return true;
      for (const std::size_t next : edges_[node]) {
        if (seen[next]) continue;
        seen[next] = true;
        open.push_back(next);
      }
    }
    return false;
  }

 private:
  static std::size_t start(std::size_t instr) { return 2 * instr; }
  static std::size_t done(std::size_t instr) { return 2 * instr + 1; }
  std::vector<std::vector<std::size_t>> edges_;
};

bool changes(const Planned& planned, const Instr& instr, StayId stay) {
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

// What instruction `i` really waits for when it waits for `before`: a write may go on while ops read the same bytes, so
// it is the last that changed them. None when they are those of the entry.
std::optional<std::size_t> cause_of_wait(const Planned& planned, std::size_t i, std::size_t before) {
  const Instr& instr = planned.plan.instrs[i];
  const bool out = instr.kind == Instr::Kind::write || instr.kind == Instr::Kind::down;
  if (!out || planned.plan.instrs[before].kind != Instr::Kind::run) return before;
  if (instr.kind == Instr::Kind::down && planned.plan.instrs[before].lane == LaneId::update) return before;
  for (std::size_t at = before + 1; at > 0; --at) {
    if (changes(planned, planned.plan.instrs[at - 1], instr.stays.front())) return at - 1;
  }
  return std::nullopt;
}

TEST(PlanVerify, AWaitCanBeDroppedExactlyWhenItIsRedundant) {
  int redundant = 0;
  int needed = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + 200; ++seed) {
    std::mt19937_64 random(seed);
    for_each_plan_of_any_memory(seed, [&](const Planned& planned) {
      for (std::size_t i = 0; i < planned.plan.instrs.size(); ++i) {
        const std::vector<InstrId>& after = planned.plan.instrs[i].after;
        if (after.empty() || random() % 2 != 0) continue;
        const std::size_t dropped = random() % after.size();
        const std::size_t before = index_of(after[dropped]);
        Plan plan = planned.plan;
        plan.instrs[i].after.erase(plan.instrs[i].after.begin() + static_cast<std::ptrdiff_t>(dropped));
        const std::string verdict = verify(planned, plan);
        if (const auto cause = cause_of_wait(planned, i, before); !cause || Order(plan).holds(*cause, i)) {
          ++redundant;
          EXPECT_EQ(verdict, "") << "instruction " << i << " need not wait for " << before;
        } else {
          ++needed;
          EXPECT_NE(verdict, "") << "instruction " << i << " must wait for " << before << "\n"
                                 << dump(planned.plan, planned.layout, planned.program);
        }
      }
    });
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(redundant, 50);
  EXPECT_GT(needed, 500);
}

// --- Mutations ---

// Removes an instruction; what waited for it no longer does.
Plan without(const Plan& plan, std::size_t gone) {
  Plan out = plan;
  out.instrs.erase(out.instrs.begin() + static_cast<std::ptrdiff_t>(gone));
  const auto rename = [&](std::vector<InstrId>& ids) {
    std::erase(ids, static_cast<InstrId>(gone));
    for (InstrId& id : ids) {
      if (index_of(id) > gone) id = static_cast<InstrId>(index_of(id) - 1);
    }
  };
  for (Instr& instr : out.instrs) rename(instr.after);
  for (auto& lane : out.lanes) rename(lane);
  return out;
}

// Lets an instruction and the one after it in its lane change places, everything else following.
Plan swapped_in_lane(const Plan& plan, std::size_t a, std::size_t b) {
  Plan out = plan;
  std::swap(out.instrs[a], out.instrs[b]);
  const auto rename = [&](InstrId& id) {
    if (index_of(id) == a) {
      id = static_cast<InstrId>(b);
    } else if (index_of(id) == b) {
      id = static_cast<InstrId>(a);
    }
  };
  for (Instr& instr : out.instrs) {
    for (InstrId& id : instr.after) rename(id);
  }
  return out;
}

class Mutator {
 public:
  Mutator(const Planned& planned, std::uint64_t seed) : planned_(planned), random_(seed) {}

  // A plan with one thing changed at random, or nothing when the plan has no such thing.
  std::optional<Plan> mutate(std::string& name) {
    using Mutation = std::pair<const char*, void (Mutator::*)()>;
    static constexpr std::array<Mutation, 15> mutations = {{
        {"a wait dropped", &Mutator::drop_wait},
        {"pages exchanged", &Mutator::swap_pages},
        {"a page of another stay", &Mutator::steal_page},
        {"a page twice in a stay", &Mutator::repeat_page},
        {"a page beyond the budget", &Mutator::lift_page},
        {"a move dropped", &Mutator::drop_move},
        {"neighbours of a lane exchanged", &Mutator::swap_neighbours},
        {"a move of another stay", &Mutator::move_other_stay},
        {"a stay not named", &Mutator::forget_stay},
        {"a stay not begun", &Mutator::forget_begin},
        {"a bundle missing at the entry", &Mutator::shrink_entry},
        {"a bundle missing at the exit", &Mutator::shrink_exit},
        {"a wait turned round", &Mutator::turn_wait},
        {"a first not marked", &Mutator::forget_first},
        {"a dirty bundle called clean", &Mutator::call_clean},
    }};
    const Mutation& mutation = mutations[random_() % mutations.size()];
    name = mutation.first;
    plan_ = planned_.plan;
    changed_ = false;
    (this->*mutation.second)();
    return changed_ ? std::optional(plan_) : std::nullopt;
  }

 private:
  template <typename T>
  T& any_of(std::vector<T>& all) {
    return all[random_() % all.size()];
  }

  // An instruction that fits, at random.
  template <typename Fits>
  Instr* any_instr(const Fits& fits) {
    const std::size_t from = random_() % plan_.instrs.size();
    for (std::size_t i = 0; i < plan_.instrs.size(); ++i) {
      Instr& instr = plan_.instrs[(from + i) % plan_.instrs.size()];
      if (fits(instr)) return &instr;
    }
    return nullptr;
  }
  static bool is_move(const Instr& instr) {
    return instr.kind != Instr::Kind::run && instr.kind != Instr::Kind::commit;
  }
  std::size_t number(const Instr* instr) const { return static_cast<std::size_t>(instr - plan_.instrs.data()); }

  void drop_wait() {
    Instr* instr = any_instr([](const Instr& i) { return !i.after.empty(); });
    if (instr == nullptr) return;
    instr->after.erase(instr->after.begin() + static_cast<std::ptrdiff_t>(random_() % instr->after.size()));
    changed_ = true;
  }
  void swap_pages() {
    PageId& a = any_of(any_of(plan_.stays).pages);
    PageId& b = any_of(any_of(plan_.stays).pages);
    changed_ = a != b;
    std::swap(a, b);
  }
  void steal_page() {
    PageId& page = any_of(any_of(plan_.stays).pages);
    const PageId other = any_of(any_of(plan_.stays).pages);
    changed_ = page != other;
    page = other;
  }
  void repeat_page() {
    Stay& stay = any_of(plan_.stays);
    if (stay.pages.size() < 2) return;
    stay.pages.front() = stay.pages.back();
    changed_ = true;
  }
  void lift_page() {
    any_of(any_of(plan_.stays).pages) = static_cast<PageId>(plan_.all_pages());
    changed_ = true;
  }
  void drop_move() {
    const Instr* instr = any_instr(is_move);
    if (instr == nullptr) return;
    plan_ = without(plan_, number(instr));
    changed_ = true;
  }
  void swap_neighbours() {
    auto& lane = plan_.lanes[random_() % lane_count];
    if (lane.size() < 2) return;
    const std::size_t at = random_() % (lane.size() - 1);
    plan_ = swapped_in_lane(plan_, index_of(lane[at]), index_of(lane[at + 1]));
    changed_ = true;
  }
  void move_other_stay() {
    Instr* instr = any_instr(is_move);
    if (instr == nullptr) return;
    const auto stay = static_cast<StayId>(random_() % plan_.stays.size());
    changed_ = stay != instr->stays.front();
    instr->stays.front() = stay;
    if (!instr->begins.empty()) instr->begins.front() = stay;
  }
  void forget_stay() {
    Instr& instr = any_of(plan_.instrs);
    if (instr.kind != Instr::Kind::run) return;
    const StayId stay = any_of(instr.stays);
    changed_ = changes(planned_, instr, stay);  // a stay is also named by ops between those that touch it
    std::erase(instr.stays, stay);
  }
  void forget_begin() {
    Instr* instr = any_instr([](const Instr& i) { return !i.begins.empty(); });
    if (instr == nullptr) return;
    instr->begins.erase(instr->begins.begin());
    changed_ = true;
  }
  void shrink_entry() { shrink(plan_.entry); }
  void shrink_exit() { shrink(plan_.exit); }
  void shrink(Boundary& boundary) {
    if (boundary.stays.empty()) return;
    const auto at = static_cast<std::ptrdiff_t>(random_() % boundary.stays.size());
    boundary.stays.erase(boundary.stays.begin() + at);
    boundary.dirty.erase(boundary.dirty.begin() + at);
    changed_ = true;
  }
  void forget_first() {
    Instr* instr = any_instr([](const Instr& i) { return i.first; });
    if (instr == nullptr) return;
    instr->first = false;
    changed_ = true;
  }
  void call_clean() {
    std::vector<bool>& dirty = random_() % 2 == 0 ? plan_.entry.dirty : plan_.exit.dirty;
    const auto at = std::find(dirty.begin(), dirty.end(), true);
    if (at == dirty.end()) return;
    *at = false;
    changed_ = true;
  }
  void turn_wait() {
    Instr* instr = any_instr([](const Instr& i) { return !i.after.empty(); });
    if (instr == nullptr) return;
    const InstrId before = any_of(instr->after);
    std::erase(instr->after, before);
    plan_.instrs[index_of(before)].after.push_back(static_cast<InstrId>(number(instr)));
    changed_ = true;
  }

  const Planned& planned_;
  std::mt19937_64 random_;
  Plan plan_;
  bool changed_ = false;
};

struct Tally {
  int made = 0;
  int refused = 0;
};

TEST(PlanVerify, RefusesEveryMutantThatAnInterleavingShowsToBeWrong) {
  std::map<std::string, Tally> tallies;
  for (std::uint64_t seed = first_seed + 1000; seed < first_seed + 1008; ++seed) {
    std::uint64_t mutant = seed * 1000;
    for_each_plan_of_any_memory(seed, [&](const Planned& planned) {
      for (int i = 0; i < 15 && !testing::Test::HasFailure(); ++i) {
        std::string name;
        const std::optional<Plan> plan = Mutator(planned, ++mutant).mutate(name);
        if (!plan) continue;
        const std::string verdict = verify(planned, *plan);
        ++tallies[name].made;
        tallies[name].refused += verdict.empty() ? 0 : 1;
        if (!verdict.empty()) continue;
        EXPECT_EQ(fault_of(planned, *plan, 6, mutant), "") << name << ", mutant " << mutant;
      }
    });
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(tallies.size(), 15U);
  for (const auto& [name, tally] : tallies) EXPECT_GT(tally.refused, 0) << name;
  for (const char* always : {"a page twice in a stay", "a page beyond the budget", "a move dropped", "a stay not named",
                             "a stay not begun", "a bundle missing at the entry", "a wait turned round"}) {
    EXPECT_EQ(tallies[always].refused, tallies[always].made) << always;
  }
}

TEST(PlanVerify, RefusesLanesOutOfOrder) {
  for_each_plan_of_any_memory(first_seed, [&](const Planned& planned) {
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      Plan plan = planned.plan;
      if (plan.lanes[lane].size() < 2) continue;
      std::swap(plan.lanes[lane].front(), plan.lanes[lane].back());
      EXPECT_NE(verify(planned, plan), "");
    }
  });
}

}  // namespace
}  // namespace spillway
