#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "random_program.h"
#include "sim/kept_state.h"

namespace spillway {
namespace {

constexpr std::uint64_t first_seed = 7300;
constexpr std::uint64_t seeds = 30;

StepRates rates_for(const Program& program, double bytes_per_second) {
  StepRates rates;
  rates.op_seconds.assign(program.ops.size(), 1.0);
  rates.read_bytes_per_second = rates.write_bytes_per_second = rates.mixed_bytes_per_second = bytes_per_second;
  return rates;
}

// A step of random ops at a budget that makes state move.
struct Step {
  explicit Step(std::uint64_t seed, std::int64_t more_pages = 0, bool keeps = false)
      : programs(seed, false, keeps),
        layout(programs.layout()),
        plan(make_plan(layout, 0, smallest_pages(layout) + more_pages, {})) {}
  Timeline timeline(double bytes_per_second) const {
    return simulate_steady(plan, layout, rates_for(programs.step(), bytes_per_second));
  }
  // Segments from the first that uses the bundle to the last, of all in the step.
  double share_in_use(BundleId bundle) const {
    const auto& uses = layout.programs.front().uses;
    const auto touches = [bundle](const std::vector<Use>& of) {
      return std::any_of(of.begin(), of.end(), [bundle](const Use& use) { return use.bundle == bundle; });
    };
    const auto first = std::find_if(uses.begin(), uses.end(), touches);
    if (first == uses.end()) return 0;
    const auto last = std::find_if(uses.rbegin(), uses.rend(), touches).base();
    return static_cast<double>(last - first) / static_cast<double>(uses.size());
  }

  RandomPrograms programs;
  Layout layout;
  Plan plan;
};

TEST(SimKeptState, AwaitedIsStateThatWasWaitedFor) {
  std::size_t awaited = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Step step(seed);
    for (const BundleId bundle : worth_keeping(Keep::awaited, step.plan, step.layout, step.timeline(1000))) {
      EXPECT_TRUE(step.layout.bundles[index_of(bundle)].state);
      ++awaited;
    }
    const Timeline fast = step.timeline(std::numeric_limits<double>::infinity());
    EXPECT_TRUE(worth_keeping(Keep::awaited, step.plan, step.layout, fast).empty());
  }
  EXPECT_GT(awaited, 0U);
}

// Where nothing is waited for, the time of a step is that of its ops, here a second each. State that no commit holds
// lives from one step to the next: its first use ends its life, and its last begins the next one.
TEST(SimKeptState, HeldIsCommittedStateAndFirstWhatIsInUseForLong) {
  std::size_t in_front = 0;
  std::int64_t left_out = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Step step(seed, 0, true);
    const Timeline fast = step.timeline(std::numeric_limits<double>::infinity());
    const std::vector<BundleId> order = worth_keeping(Keep::held, step.plan, step.layout, fast);
    std::set<BundleId> expected;
    for (std::int32_t b = 0; b < step.layout.state_bundles; ++b) {
      const auto bundle = static_cast<BundleId>(b);
      if (step.share_in_use(bundle) == 0) continue;
      if (step.layout.bundles[index_of(bundle)].committed) {
        expected.insert(bundle);
      } else {
        ++left_out;
      }
    }
    EXPECT_EQ(std::set<BundleId>(order.begin(), order.end()), expected);
    EXPECT_EQ(expected.size(), order.size());
    std::vector<double> shares;
    for (const BundleId bundle : order) shares.push_back(step.share_in_use(bundle));
    // A segment may be of several ops, so what lies near the middle is left open.
    const auto is_long = [](double share) { return share > 0.7; };
    const auto is_short = [](double share) { return share < 0.3; };
    const auto last_long = std::find_if(shares.rbegin(), shares.rend(), is_long).base();
    const auto first_short = std::find_if(shares.begin(), shares.end(), is_short);
    EXPECT_LE(last_long - shares.begin(), first_short - shares.begin());
    in_front += first_short != shares.end() ? static_cast<std::size_t>(last_long - shares.begin()) : 0;
  }
  EXPECT_GT(in_front, 0U);
  EXPECT_GT(left_out, 0);
}

TEST(SimKeptState, KeepsWholeBundlesThatFitTheMostWorthFirst) {
  constexpr std::int64_t spare = 6;
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Step step(seed, spare);
    const Timeline slow = step.timeline(1000);
    const WeighedState weighed(step.plan, step.layout, slow);
    for (const Keep keep : all_keeps) {
      for (const std::int64_t pages : {0, 3, 6, 600}) {
        std::set<BundleId> expected;
        std::int64_t left = pages;
        for (const BundleId bundle : worth_keeping(keep, step.plan, step.layout, slow)) {
          if (step.layout.pages_of(bundle) > left) continue;
          left -= step.layout.pages_of(bundle);
          expected.insert(bundle);
        }
        std::set<PieceId> pieces;
        for (std::size_t p = 0; p < step.layout.piece_places.size(); ++p) {
          if (expected.contains(step.layout.piece_places[p].bundle)) pieces.insert(static_cast<PieceId>(p));
        }
        const auto kept = weighed.pieces_to_keep(keep, static_cast<double>(pages) / static_cast<double>(spare));
        EXPECT_EQ(std::set<PieceId>(kept.begin(), kept.end()), pieces);
        EXPECT_EQ(kept.size(), pieces.size());
      }
    }
  }
}

}  // namespace
}  // namespace spillway
