#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "random_program.h"
#include "sim/awaited.h"

namespace spillway {
namespace {

constexpr std::uint64_t awaited_seed = 7300;

StepRates rates_for(const Program& program, double bytes_per_second) {
  StepRates rates;
  rates.op_seconds.assign(program.ops.size(), 1.0);
  rates.read_bytes_per_second = rates.write_bytes_per_second = rates.mixed_bytes_per_second = bytes_per_second;
  return rates;
}

TEST(SimAwaited, IsStateThatWasWaitedForAndFits) {
  std::int64_t chosen_in_all = 0;
  for (std::uint64_t seed = awaited_seed; seed < awaited_seed + 30; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const Plan plan = make_plan(layout, 0, smallest_pages(layout), {});
    const Timeline slow = simulate_steady(plan, layout, rates_for(programs.step(), 1000));
    for (const std::int64_t pages : {0, 2, 7, 1000}) {
      const std::vector<bool> chosen = most_awaited(plan, layout, slow, pages);
      std::int64_t taken = 0;
      for (std::size_t b = 0; b < chosen.size(); ++b) {
        if (!chosen[b]) continue;
        EXPECT_TRUE(layout.bundles[b].state);
        taken += layout.pages_of(static_cast<BundleId>(b));
      }
      EXPECT_LE(taken, pages);
      chosen_in_all += taken;
    }
    const Timeline fast =
        simulate_steady(plan, layout, rates_for(programs.step(), std::numeric_limits<double>::infinity()));
    for (const bool chosen : most_awaited(plan, layout, fast, 1000)) EXPECT_FALSE(chosen);
  }
  EXPECT_GT(chosen_in_all, 0);
}

}  // namespace
}  // namespace spillway
