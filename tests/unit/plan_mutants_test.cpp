// The verifier accepts no plan for which an interleaving is found that computes something else, however the plan came
// to be wrong.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <random>

#include "random_plans.h"
#include "under_sanitizer.h"

namespace spillway {
namespace {

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
    static constexpr std::array<Mutation, 17> mutations = {{
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
        {"a stay begun and not named", &Mutator::begin_unnamed},
        {"an instruction twice in its lane", &Mutator::repeat_instr},
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
    if (instr.kind != Instr::Kind::run || instr.stays.empty()) return;
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
  void begin_unnamed() {
    const auto stay = static_cast<StayId>(plan_.stays.size());
    plan_.stays.push_back(any_of(plan_.stays));
    any_of(plan_.instrs).begins.push_back(stay);
    changed_ = true;
  }
  void repeat_instr() {
    auto& lane = plan_.lanes[random_() % lane_count];
    if (lane.empty()) return;
    lane.push_back(any_of(lane));
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

TEST(PlanMutants, RefusesEveryMutantThatAnInterleavingShowsToBeWrong) {
  std::map<std::string, Tally> tallies;
  for (std::uint64_t seed = first_seed + 1000; seed < first_seed + 1000 + cases(8); ++seed) {
    std::uint64_t mutant = seed * 1000;
    for_each_plan_of_any_memory(seed, [&](const Planned& planned) {
      for (int i = 0; i < 17 && !testing::Test::HasFailure(); ++i) {
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
  EXPECT_EQ(tallies.size(), 17U);
  for (const auto& [name, tally] : tallies) EXPECT_GT(tally.refused, 0) << name;
  for (const char* always : {"a page twice in a stay", "a page beyond the budget", "a move dropped", "a stay not named",
                             "a stay not begun", "a bundle missing at the entry", "a wait turned round",
                             "a stay begun and not named", "an instruction twice in its lane"}) {
    EXPECT_EQ(tallies[always].refused, tallies[always].made) << always;
  }
}

}  // namespace
}  // namespace spillway
