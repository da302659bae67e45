// The way of the next step follows from the clips so far.
#include <gtest/gtest.h>

#include "session/clip_policy.h"

namespace spillway {
namespace {

constexpr ClipCosts costs{.speculative = 28, .redo = 26, .deferred = 30};

int steps_until(ClipPolicy& policy, UpdateWay way, bool clipped) {
  int steps = 0;
  for (; policy.way() != way && steps < 1000; ++steps) policy.note(clipped);
  return steps;
}

TEST(ClipPolicy, BreaksEvenWhereARedoCostsWhatDeferringDoes) {
  const double share = break_even_share(costs);
  EXPECT_DOUBLE_EQ(costs.speculative + share * costs.redo, costs.deferred);
  EXPECT_EQ(break_even_share({.speculative = 30, .redo = 26, .deferred = 28}), 0) << "nothing to gain";
  EXPECT_EQ(break_even_share({.speculative = 30, .redo = 26, .deferred = 30}), 0);
  EXPECT_EQ(break_even_share({.speculative = 30, .redo = 26, .deferred = 30.1}), 1.0 / 64) << "not for a rare clip";
  EXPECT_EQ(break_even_share({.speculative = 1, .redo = 1, .deferred = 9}), 0.5);
  EXPECT_EQ(break_even_share({.speculative = 1, .redo = 0, .deferred = 2}), 0.5) << "nothing to redo";
}

TEST(ClipPolicy, KeepsAForcedWayWhateverHappens) {
  ClipPolicy policy(UpdateWay::speculative);
  for (int i = 0; i < 100; ++i) policy.note(true);
  EXPECT_EQ(policy.way(), UpdateWay::speculative);
}

TEST(ClipPolicy, SpeculatesWhileClipsAreRareAndDefersWhileTheyAreFrequent) {
  ClipPolicy policy(costs);
  EXPECT_EQ(policy.way(), UpdateWay::speculative);
  for (int i = 0; i < 100; ++i) policy.note(false);
  EXPECT_EQ(policy.way(), UpdateWay::speculative);
  EXPECT_LE(steps_until(policy, UpdateWay::deferred, true), 3);
  for (int i = 0; i < 100; ++i) policy.note(true);
  EXPECT_EQ(policy.way(), UpdateWay::deferred);
  EXPECT_GT(policy.clipped_share(), 0.9);
  EXPECT_GT(steps_until(policy, UpdateWay::speculative, false), 10) << "it does not go back at the first chance";
  EXPECT_EQ(policy.way(), UpdateWay::speculative);
}

TEST(ClipPolicy, LearnsFromTheFirstStepsAsMuchAsTheySay) {
  constexpr ClipCosts cheap_redo{.speculative = 28, .redo = 4, .deferred = 30};
  ClipPolicy clips(cheap_redo);
  EXPECT_EQ(steps_until(clips, UpdateWay::deferred, true), 1) << "all steps so far clipped";
  EXPECT_EQ(steps_until(clips, UpdateWay::speculative, false), 3) << "less than a quarter of the steps so far clipped";
  for (int i = 0; i < 100; ++i) clips.note(false);
  clips.note(true);
  EXPECT_EQ(clips.way(), UpdateWay::speculative) << "one of a hundred";
}

TEST(ClipPolicy, AlwaysDefersWhereThatCostsNoMoreWithoutClips) {
  for (const double deferred : {28.0, 30.0}) {
    ClipPolicy policy(ClipCosts{.speculative = 30, .redo = 26, .deferred = deferred});
    EXPECT_EQ(policy.way(), UpdateWay::deferred);
    EXPECT_EQ(steps_until(policy, UpdateWay::speculative, false), 1000);
    EXPECT_EQ(steps_until(policy, UpdateWay::speculative, true), 1000);
    EXPECT_EQ(steps_until(policy, UpdateWay::speculative, false), 1000);
  }
}

TEST(ClipPolicy, DependsOnTheClipsAlone) {
  ClipPolicy a(costs);
  ClipPolicy b(costs);
  for (int i = 0; i < 200; ++i) {
    a.note(i % 7 == 0);
    b.note(i % 7 == 0);
    ASSERT_EQ(a.way(), b.way());
  }
}

}  // namespace
}  // namespace spillway
