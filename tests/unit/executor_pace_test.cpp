// What holds a virtual device to its rates: never faster, over many pieces too, however late a sleep ends. That it is
// not much slower is for bench/tiers_bench.
#include <gtest/gtest.h>

#include <vector>

#include "base/steady_clock.h"
#include "executor/link_pace.h"
#include "executor/op_pace.h"

namespace spillway {
namespace {

// Of catching up after what came before, and of the last sleep, which may be left out.
constexpr double tolerance_seconds = 0.0021;

TEST(Pace, CopiesTakeWhatTheLinkTakesAtLeast) {
  std::vector<std::byte> from(3 << 20);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 >> 3);
  std::vector<std::byte> to(from.size());
  LinkPace link(2e8, 1e-3);
  const auto start = SteadyClock::now();
  constexpr int copies = 4;
  for (int i = 0; i < copies; ++i) link.copy(to.data(), from.data(), std::ssize(from));
  EXPECT_GE(seconds_since(start), copies * (static_cast<double>(from.size()) / 2e8 + 1e-3) - tolerance_seconds);
  EXPECT_EQ(to, from);
}

TEST(Pace, OpsTakeWhatTheProcessorTakesAtLeast) {
  OpPace processor(1e6);
  int done = 0;
  const auto start = SteadyClock::now();
  for (int i = 0; i < 5; ++i) processor.run(6000, [&] { ++done; });
  EXPECT_GE(seconds_since(start), 5 * 6000 / 1e6 - tolerance_seconds);
  EXPECT_EQ(done, 5);
}

}  // namespace
}  // namespace spillway
