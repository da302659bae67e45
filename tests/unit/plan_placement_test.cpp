// Where stays of a device lie: what is mapped anew in each step by plans that follow themselves.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "plan/tiers.h"
#include "plan/trail.h"
#include "random_program.h"

namespace spillway {
namespace {

constexpr std::uint64_t placement_seed = 6200;

struct Mapped {
  std::int64_t anew = 0;
  std::int64_t begun = 0;
};

// A device that keeps a page mapped where it was, and what a plan that follows itself asks of it.
class Device {
 public:
  // At first the entry lies anywhere.
  Device(const Plan& plan, const Layout& layout, std::uint64_t seed)
      : plan_(plan), waits_(plan, layout), trail_(layout.bundles.size(), static_cast<std::size_t>(plan.all_pages())) {
    std::vector<PageId> pages(static_cast<std::size_t>(plan.all_pages()));
    for (std::size_t p = 0; p < pages.size(); ++p) pages[p] = static_cast<PageId>(p);
    std::mt19937_64 random(seed);
    std::shuffle(pages.begin(), pages.begin() + plan.pages, random);
    std::shuffle(pages.begin() + plan.pages, pages.end(), random);
    std::array<std::int64_t, memory_count> next{0, plan.pages};
    for (const StayId id : plan.entry.stays) {
      const Stay& stay = plan.stays[index_of(id)];
      std::int64_t& at = next[static_cast<std::size_t>(stay.memory)];
      for (std::size_t i = 0; i < stay.pages.size(); ++i) {
        held_[residence_of(stay)].push_back(pages[static_cast<std::size_t>(at++)]);
      }
    }
  }

  Mapped step() {
    std::vector<std::vector<PageId>> entry;
    for (const StayId id : plan_.entry.stays) entry.push_back(held_[residence_of(plan_.stays[index_of(id)])]);
    const Following following = trail_.follow(waits_, entry);
    const auto physical = [&](const Stay& stay) {
      std::vector<PageId> pages;
      for (const PageId page : stay.pages) pages.push_back(following.physical[index_of(page)]);
      return pages;
    };
    Mapped mapped;
    for (const Instr& instr : plan_.instrs) {
      for (const StayId id : instr.begins) {
        const Stay& stay = plan_.stays[index_of(id)];
        if (stay.memory != MemoryId::device) continue;
        const std::vector<PageId> pages = physical(stay);
        std::vector<PageId>& there = there_[stay.bundle];
        there.resize(pages.size(), PageId::none);
        for (std::size_t i = 0; i < pages.size(); ++i) mapped.anew += there[i] != pages[i] ? 1 : 0;
        mapped.begun += std::ssize(pages);
        there = pages;
      }
    }
    held_.clear();
    for (const StayId id : plan_.exit.stays) {
      held_[residence_of(plan_.stays[index_of(id)])] = physical(plan_.stays[index_of(id)]);
    }
    return mapped;
  }

 private:
  const Plan& plan_;
  const PlanWaits waits_;
  Trail trail_;
  std::map<Residence, std::vector<PageId>> held_;
  std::map<BundleId, std::vector<PageId>> there_;  // by bundle: what is mapped at its address
};

// Every bundle of the device lies on the same pages in all its stays.
bool keeps_pages(const Plan& plan) {
  std::map<BundleId, std::vector<PageId>> pages;
  return std::all_of(plan.stays.begin(), plan.stays.end(), [&](const Stay& stay) {
    return stay.memory == MemoryId::host || pages.try_emplace(stay.bundle, stay.pages).first->second == stay.pages;
  });
}

TEST(PlanPlacement, LittleIsMappedAnewInAStepThatFollowsItself) {
  Mapped all;
  int kept = 0;
  int moving = 0;
  for (std::uint64_t seed = placement_seed; seed < placement_seed + 100; ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const std::int64_t smallest = smallest_pages(layout);
    const std::int64_t room = std::max<std::int64_t>(0, in_memory_pages(layout, 0) - smallest);
    for (const std::int64_t share : {0, 30, 60, 90}) {
      SCOPED_TRACE(fmt::format("seed {}, share {}", seed, share));
      const TierPages pages{smallest + room * share / 100, smallest_host_pages(layout) + room};
      const Plan plan = make_tiered_plan(layout, 0, pages, {});
      ASSERT_EQ(verify(plan, layout, programs.step()), "");
      if (!plan.uses_link()) continue;
      Device device(plan, layout, seed);
      for (int step = 0; step < 3; ++step) device.step();
      const Mapped mapped = device.step();
      ++moving;
      if (keeps_pages(plan)) {
        ++kept;
        EXPECT_EQ(mapped.anew, 0);
      }
      all.anew += mapped.anew;
      all.begun += mapped.begun;
    }
  }
  fmt::print("{} of {} pages mapped anew, {} of {} plans keep all pages\n", all.anew, all.begun, kept, moving);
  EXPECT_GT(moving, 100);
  EXPECT_GT(kept, moving * 3 / 4);
  EXPECT_LT(all.anew, all.begun / 30);
}

}  // namespace
}  // namespace spillway
