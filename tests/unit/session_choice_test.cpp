// The choice of how a step is worked through, over scores made up here.
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "base/bytes.h"
#include "base/error.h"
#include "plan/plan.h"
#include "session/choice.h"

namespace spillway {
namespace {

constexpr std::int64_t layers = 12;

// Computing takes longer the more is recomputed, moving less; they overlap.
WorkScore score_of(const WorkChoice& choice, double disk_bytes_per_second, double order_factor = 2) {
  constexpr double dearer[] = {0, 0.02, 0.15, 0.4};
  constexpr double saved[] = {0, 0.3, 0.5, 0.8};
  const auto kind = static_cast<std::size_t>(choice.recompute.kind);
  const double share = static_cast<double>(choice.recompute.layers) / layers;
  const double compute = 1 + dearer[kind] * share;
  const double moved = 4e9 * (1 - saved[kind] * share);
  const double local = choice.order == WorkOrder::by_micro_batch ? moved / 4 : moved;
  WorkScore score;
  score.fits = true;
  score.state_write_bytes =
      static_cast<std::int64_t>(choice.order == WorkOrder::by_micro_batch ? order_factor * 1e9 : 1e9);
  score.local_write_bytes = static_cast<std::int64_t>(local);
  score.read_bytes = score.write_bytes();
  const double disk = static_cast<double>(score.read_bytes + score.write_bytes()) / disk_bytes_per_second;
  score.seconds = std::max(compute, disk);
  score.stalled_seconds = score.seconds - compute;
  score.ops = 1000;
  return score;
}

class ChoiceTest : public testing::Test {
 protected:
  WorkChosen choose(double disk_bytes_per_second, double order_factor = 2) {
    return choose_work(limits_, [&](const WorkChoice& choice) {
      ++count_[describe(choice)];
      return score_of(choice, disk_bytes_per_second, order_factor);
    });
  }

  std::string note_of(const WorkChosen& chosen) const {
    return note_on(chosen.choice, chosen.score, chosen.tried, limits_);
  }

  WorkLimits limits_{.layers = layers, .micro_batches = 4};
  std::map<std::string, int> count_;
};

TEST_F(ChoiceTest, KeepsEverythingWhereTheDiskIsFastEnough) {
  limits_.micro_batches = 1;
  const WorkChosen chosen = choose(1e11);
  EXPECT_EQ(chosen.choice, WorkChoice{});
  EXPECT_EQ(chosen.tried.size(), 1U);
  EXPECT_TRUE(note_of(chosen).empty());
}

TEST_F(ChoiceTest, GoesInTheOrderThatWritesLessWhereBothAreAsFast) {
  const WorkChosen chosen = choose(1e11, 2);
  EXPECT_EQ(chosen.choice.order, WorkOrder::by_micro_batch);
  EXPECT_EQ(chosen.choice.recompute.kind, RecomputeKind::none);
  EXPECT_EQ(chosen.tried.size(), 2U);
  EXPECT_EQ(choose(1e11, 5).choice.order, WorkOrder::by_layer) << "it writes less";
  EXPECT_EQ(choose(1e11, 3.9).choice.order, WorkOrder::by_layer) << "2% less is no reason";
}

// A disk that nothing waits for may still take time from computing, byte by byte.
TEST_F(ChoiceTest, LooksForFewerBytesWhereTheDiskSlowsComputing) {
  constexpr double seconds_per_byte = 2e-11;
  limits_.order = WorkOrder::by_layer;
  const auto slowed = [](const WorkChoice& choice) {
    WorkScore score = score_of(choice, 1e11);
    const auto bytes = static_cast<double>(score.read_bytes + score.write_bytes());
    score.slowed_seconds = seconds_per_byte * bytes;
    score.seconds += score.slowed_seconds;
    return score;
  };
  const WorkChosen chosen = choose_work(limits_, slowed);
  EXPECT_EQ(chosen.choice.recompute.kind, RecomputeKind::cheap);
  for (const WorkTried& tried : chosen.tried) EXPECT_LE(chosen.score.seconds, tried.score.seconds);
}

TEST_F(ChoiceTest, TriesNothingWhereNothingMovesOrNothingFits) {
  for (const bool fits : {true, false}) {
    const WorkChosen chosen = choose_work(limits_, [&](const WorkChoice&) {
      WorkScore score;
      score.fits = fits;
      score.seconds = 1;
      score.stalled_seconds = 0.5;
      return score;
    });
    EXPECT_EQ(chosen.tried.size(), 1U);
    EXPECT_EQ(chosen.choice, WorkChoice{});
  }
}

TEST_F(ChoiceTest, DefersUpdatesWhereThatIsFasterUnlessToldHowMany) {
  const auto halves = [](const WorkChoice& choice) {
    WorkScore score = score_of(choice, 1e9);
    score.seconds += static_cast<double>(std::abs(choice.deferred_layers - layers / 2));
    return score;
  };
  EXPECT_EQ(choose_work(limits_, halves).choice.deferred_layers, layers / 2);
  limits_.deferred_layers = 0;
  const WorkChosen none = choose_work(limits_, halves);
  for (const WorkTried& tried : none.tried) EXPECT_EQ(tried.choice.deferred_layers, 0);
  limits_.deferred_layers = 3;
  const WorkChosen forced = choose_work(limits_, halves);
  for (const WorkTried& tried : forced.tried) EXPECT_EQ(tried.choice.deferred_layers, 3);
}

TEST_F(ChoiceTest, LeavesAsMuchToWhatWasChangedLastAsIsFastestUnlessTold) {
  for (const double fastest : {0.1, 0.5, 0.7}) {
    const auto seconds = [&](const WorkChoice& choice) {
      WorkScore score = score_of({}, 1e9);
      score.seconds += choice.policy == Policy::automatic ? std::abs(choice.settling - fastest) : 0.5;
      return score;
    };
    EXPECT_EQ(choose_work(limits_, seconds).choice.settling, fastest);
    WorkLimits forced = limits_;
    forced.settling = default_settling;
    for (const WorkTried& tried : choose_work(forced, seconds).tried) {
      EXPECT_EQ(tried.choice.settling, default_settling);
    }
  }
}

// Recomputing alone gains, and updates that wait gain more, but not both together.
TEST_F(ChoiceTest, WhatIsBestOfOneThingDependsOnTheOthers) {
  const auto either = [](const WorkChoice& choice) {
    WorkScore score = score_of({}, 1e9);
    const bool recomputes = choice.recompute.kind != RecomputeKind::none;
    const std::int64_t off = std::abs(choice.deferred_layers - layers / 4);
    score.seconds = recomputes ? 1.5 + 0.05 * choice.deferred_layers : 1.2 + 0.2 * static_cast<double>(off);
    if (off == 0 && choice.pinned == 0.35) score.seconds -= 0.1;
    return score;
  };
  const WorkChosen chosen = choose_work(limits_, either);
  EXPECT_EQ(chosen.choice.recompute.kind, RecomputeKind::none);
  EXPECT_EQ(chosen.choice.deferred_layers, layers / 4);
  EXPECT_EQ(chosen.choice.pinned, 0.35);
}

// Each kind of what is kept goes with other recomputing: neither hides the other.
TEST_F(ChoiceTest, TriesBothKindsOfWhatIsKept) {
  for (const Keep faster : all_keeps) {
    const auto seconds = [faster](const WorkChoice& choice) {
      WorkScore score = score_of({}, 1e9);
      const bool recomputes = choice.recompute.kind != RecomputeKind::none;
      score.seconds = 2;
      if (choice.pinned == 0.5 && choice.keep != faster) score.seconds = recomputes ? 1.9 : 1.8;
      if (choice.pinned == 0.8 && choice.keep == faster) score.seconds = recomputes ? 1.6 : 1.9;
      return score;
    };
    const WorkChosen chosen = choose_work(limits_, seconds);
    EXPECT_EQ(chosen.choice.keep, faster);
    EXPECT_EQ(chosen.choice.pinned, 0.8);
    EXPECT_NE(chosen.choice.recompute.kind, RecomputeKind::none);
  }
}

TEST_F(ChoiceTest, DefersMoreUpdatesWhereFewGainNothing) {
  const auto three_or_more = [](const WorkChoice& choice) {
    WorkScore score = score_of({}, 1e9);
    score.seconds = choice.deferred_layers < 3 ? 2 : 1.8;
    return score;
  };
  EXPECT_EQ(choose_work(limits_, three_or_more).choice.deferred_layers, 3);
}

TEST_F(ChoiceTest, DefersNoUpdatesWhereStepsClipOrEachCommits) {
  TrainOptions options;
  options.deferred_layers = 4;
  options.max_grad_norm = 0;
  EXPECT_EQ(forced_deferral(options, 12), 4);
  EXPECT_EQ(forced_deferral(options, 3), 3);
  options.save_steps = 1;
  EXPECT_EQ(forced_deferral(options, 12), 0);
  options.save_steps = 0;
  options.max_grad_norm = 1;
  EXPECT_EQ(forced_deferral(options, 12), 0);
  options.max_grad_norm = 0;
  options.deferred_layers = -1;
  EXPECT_EQ(forced_deferral(options, 12), std::nullopt);
}

TEST_F(ChoiceTest, TakesTheFastestOfWhatItTriesAndTriesNothingTwice) {
  for (const double disk : {1e8, 1e9, 3e9, 5e9, 8e9, 1e10}) {
    for (const double factor : {1.0, 3.0, 20.0}) {
      count_.clear();
      const WorkChosen chosen = choose(disk, factor);
      double fastest = chosen.tried.front().score.seconds;
      for (const WorkTried& tried : chosen.tried) fastest = std::min(fastest, tried.score.seconds);
      EXPECT_LE(chosen.score.seconds, fastest * 1.01);
      EXPECT_LE(chosen.tried.size(), 66U);
      for (const auto& [choice, times] : count_) EXPECT_EQ(times, 1) << choice;
    }
  }
}

TEST_F(ChoiceTest, RecomputesMoreTheSlowerTheDisk) {
  limits_.order = WorkOrder::by_layer;
  RecomputeKind last = RecomputeKind::none;
  for (const double disk : {1e11, 9e9, 6e9, 1e9}) {
    const RecomputeKind kind = choose(disk).choice.recompute.kind;
    EXPECT_GE(kind, last);
    last = kind;
  }
  EXPECT_EQ(last, RecomputeKind::block);
}

// A hundredth slower at the disk's best, a tenth faster at its worst.
TEST_F(ChoiceTest, TakesWhatLosesLittleOnASlowDisk) {
  const auto of_two = [](double slow_factor) {
    return [slow_factor](const WorkChoice& choice) {
      const bool moves_less = choice.recompute == Recompute{RecomputeKind::cheap, layers};
      WorkScore score;
      score.fits = true;
      score.seconds = moves_less ? 1.01 : choice == WorkChoice{} ? 1 : 2;
      score.slow_disk_seconds = slow_factor * (moves_less ? 1.1 : choice == WorkChoice{} ? 1.2 : 2);
      score.stalled_seconds = 0.02;
      score.read_bytes = 1;
      return score;
    };
  };
  EXPECT_EQ(choose_work(limits_, of_two(1)).choice.recompute.kind, RecomputeKind::cheap);
  EXPECT_EQ(choose_work(limits_, of_two(0)).choice, WorkChoice{});
}

TEST_F(ChoiceTest, LooksForMoreWhereOnlyASlowDiskIsWaitedFor) {
  limits_.order = WorkOrder::by_layer;
  WorkScore score = score_of({}, 1e11);
  score.stalled_seconds = 0;
  score.slow_disk_seconds = 1.1 * score.seconds;
  EXPECT_GT(choose_work(limits_, [&](const WorkChoice&) { return score; }).tried.size(), 1U);
  score.slow_disk_seconds = score.seconds;
  EXPECT_EQ(choose_work(limits_, [&](const WorkChoice&) { return score; }).tried.size(), 1U);
}

// Nothing is on disk, but a step waits for the link to a device.
TEST_F(ChoiceTest, RecomputesWhereALinkIsSlow) {
  limits_.order = WorkOrder::by_layer;
  const WorkChosen chosen = choose_work(limits_, [](const WorkChoice& choice) {
    WorkScore score = score_of(choice, 1e9);
    score.link_bytes = score.read_bytes + score.write_bytes();
    score.read_bytes = score.state_write_bytes = score.local_write_bytes = 0;
    return score;
  });
  EXPECT_EQ(chosen.choice.recompute.kind, RecomputeKind::block);
}

TEST_F(ChoiceTest, GoesByMicroBatchWhereStateIsTheSmallerPart) {
  EXPECT_EQ(choose(1e9, 1).choice.order, WorkOrder::by_micro_batch);
  EXPECT_EQ(choose(1e9, 20).choice.order, WorkOrder::by_layer);
  limits_.micro_batches = 1;  // then both orders are one
  EXPECT_EQ(choose(1e9, 1).choice.order, WorkOrder::by_layer);
}

TEST_F(ChoiceTest, WhatIsForcedIsNotChosen) {
  limits_.recompute = Recompute{RecomputeKind::attention, 3};
  for (const WorkTried& tried : choose(1e9).tried) EXPECT_EQ(tried.choice.recompute, limits_.recompute);
  limits_.recompute.reset();
  limits_.order = WorkOrder::by_micro_batch;
  for (const WorkTried& tried : choose(1e9).tried) EXPECT_EQ(tried.choice.order, WorkOrder::by_micro_batch);
}

TEST_F(ChoiceTest, AStepOfManyOpsIsTriedInFewWays) {
  int calls = 0;
  choose_work(limits_, [&](const WorkChoice& choice) {
    ++calls;
    WorkScore score = score_of(choice, 1e9);
    score.ops = 300'000;
    return score;
  });
  EXPECT_LE(calls, 4);
  EXPECT_GT(calls, 1);
}

TEST_F(ChoiceTest, OtherPoliciesAreTriedBeforeTheWorkIsUsedUp) {
  const WorkChosen chosen = choose_work(limits_, [&](const WorkChoice& choice) {
    WorkScore score = score_of(choice, 1e9);
    score.ops = 130'000;  // of a 70B model
    if (choice.policy == Policy::everything_on_disk) score.seconds = 0.5;
    return score;
  });
  EXPECT_EQ(chosen.choice.policy, Policy::everything_on_disk);
}

TEST_F(ChoiceTest, PoliciesLeaveWorkForOtherChoices) {
  const WorkChosen chosen = choose_work(limits_, [&](const WorkChoice& choice) {
    WorkScore score = score_of(choice, 1e9);
    score.ops = 130'000;  // of a 70B model
    if (choice.recompute.kind == RecomputeKind::cheap) score.seconds = 0.5;
    return score;
  });
  EXPECT_EQ(chosen.choice.recompute.kind, RecomputeKind::cheap);
}

// The last is tried last, and what is tried before it may use up the work of choosing.
TEST_F(ChoiceTest, TakesAnyPolicyThatIsFaster) {
  for (const std::int64_t ops : {1'000, 12'000, 17'000, 22'000}) {
    for (const Policy policy : all_policies) {
      const WorkChosen chosen = choose_work(limits_, [&](const WorkChoice& choice) {
        WorkScore score = score_of(choice, 1e9);
        score.ops = ops;
        if (choice.policy == policy) score.seconds /= 2;
        return score;
      });
      EXPECT_EQ(chosen.choice.policy, policy) << name_of(policy) << ", " << ops << " ops";
    }
  }
}

TEST_F(ChoiceTest, StaysUnderTheWritesADayWhereAnythingDoes) {
  const WorkChosen free = choose(1e10);
  const double unlimited = free.score.writes_per_day();
  limits_.max_disk_writes_per_day = static_cast<std::int64_t>(unlimited * 0.6);
  const WorkChosen chosen = choose(1e10);
  EXPECT_LE(chosen.score.writes_per_day(), unlimited * 0.6);
  EXPECT_GE(chosen.score.seconds, free.score.seconds);
  for (const WorkTried& tried : chosen.tried) {
    if (tried.score.writes_per_day() <= unlimited * 0.6) {
      EXPECT_LE(chosen.score.seconds, tried.score.seconds * 1.01) << describe(tried.choice);
    }
  }
}

TEST_F(ChoiceTest, WritesLeastAndSaysSoWhereNothingStaysUnder) {
  limits_.max_disk_writes_per_day = 1;
  const WorkChosen chosen = choose(1e10);
  for (const WorkTried& tried : chosen.tried) {
    EXPECT_LE(chosen.score.writes_per_step(), tried.score.writes_per_step()) << describe(tried.choice);
  }
  EXPECT_NE(note_of(chosen).find("max_disk_writes_per_day"), std::string::npos);
  EXPECT_EQ(note_of(chosen).find("save_steps"), std::string::npos);
  limits_.commits_each_step = true;
  EXPECT_NE(note_of(chosen).find("each step commits, which save_steps spaces out"), std::string::npos);
}

// A policy that moves twice as much in three times the time writes least a day, and most in the whole run.
TEST_F(ChoiceTest, DoesNotTakeASlowChoiceForOneThatWritesLittle) {
  limits_.max_disk_writes_per_day = 1;
  const WorkChosen chosen = choose_work(limits_, [](const WorkChoice& choice) {
    WorkScore score = score_of(choice, 1e10);
    if (choice.policy == Policy::lru) {
      score.local_write_bytes *= 2;
      score.state_write_bytes *= 2;
      score.seconds *= 3;
    }
    return score;
  });
  EXPECT_NE(chosen.choice.policy, Policy::lru);
}

TEST_F(ChoiceTest, SaysWhatIsAskedForAndHasNothingToDecide) {
  TrainOptions options;
  EXPECT_TRUE(idle_requests(options).empty());
  options.deferred_layers = 4;
  ASSERT_EQ(idle_requests(options).size(), 1U);
  EXPECT_NE(idle_requests(options).front().find("deferred_layers is 4"), std::string::npos);
  options.max_grad_norm = 0;
  EXPECT_TRUE(idle_requests(options).empty());
  options.save_steps = 1;
  EXPECT_EQ(idle_requests(options).size(), 1U);
  options.deferred_layers = 0;
  options.clip_mode = "speculative";
  ASSERT_EQ(idle_requests(options).size(), 1U);
  EXPECT_NE(idle_requests(options).front().find("clip_mode is speculative"), std::string::npos);
}

TEST_F(ChoiceTest, CountsCommitsAmongTheWritesOfADay) {
  WorkScore one;
  one.seconds = 2;
  one.state_write_bytes = 10;
  one.commit_bytes_per_second = 3;
  EXPECT_DOUBLE_EQ(one.writes_per_day(), 8 * 86400.0);
  limits_.max_disk_writes_per_day = static_cast<std::int64_t>(choose(1e10).score.writes_per_day() * 0.3);
  EXPECT_EQ(choose(1e10).choice.recompute.kind, RecomputeKind::block);
  const auto with_commits = [](const WorkChoice& choice) {
    WorkScore score = score_of(choice, 1e10);
    if (choice.recompute.kind != RecomputeKind::none) score.commit_bytes_per_second = 1e12;
    return score;
  };
  EXPECT_EQ(choose_work(limits_, with_commits).choice.recompute.kind, RecomputeKind::none);
  limits_.recompute = Recompute{RecomputeKind::block, layers};
  EXPECT_NE(note_of(choose_work(limits_, with_commits)).find("save_steps"), std::string::npos);
}

TEST(ForcedChoice, ReadsKindAndLayers) {
  TrainOptions options;
  EXPECT_EQ(forced_recompute(options, 12), std::nullopt);
  options.recompute = "block";
  EXPECT_EQ(forced_recompute(options, 12), (Recompute{RecomputeKind::block, 12}));
  options.recompute = "cheap:3";
  EXPECT_EQ(forced_recompute(options, 12), (Recompute{RecomputeKind::cheap, 3}));
  options.recompute = "attention:99";
  EXPECT_EQ(forced_recompute(options, 12), (Recompute{RecomputeKind::attention, 12}));
  for (const char* wrong : {"blocks", "block:", "block:x", "block:-1", "auto:2", ""}) {
    options.recompute = wrong;
    EXPECT_THROW(forced_recompute(options, 12), UserError) << wrong;
  }
}

}  // namespace
}  // namespace spillway
