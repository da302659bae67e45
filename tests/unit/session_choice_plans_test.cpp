// The choice of how a step is worked through, over plans of small models.
#include <gtest/gtest.h>

#include <limits>

#include "base/bytes.h"
#include "llama_in_pieces.h"
#include "plan/plan.h"
#include "program/spec.h"
#include "scratch_folder.h"
#include "session/choice.h"
#include "session/session.h"
#include "session/setup.h"
#include "sim/simulate.h"
#include "tiny_llama.h"
#include "under_sanitizer.h"

namespace spillway {
namespace {

ModelConfig small_llama() {
  ModelConfig config = tiny_llama();
  config.hidden_size = 64;
  config.intermediate_size = 160;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 4;
  config.max_position_embeddings = 512;
  return config;
}

// What recomputation is for: fewer activations are alive at once.
TEST(Recomputed, StepsNeedLessMemoryTheMoreIsRecomputed) {
  for (const WorkOrder order : {WorkOrder::by_layer, WorkOrder::by_micro_batch}) {
    std::int64_t last_pages = std::numeric_limits<std::int64_t>::max();
    for (const RecomputeKind kind :
         {RecomputeKind::none, RecomputeKind::cheap, RecomputeKind::attention, RecomputeKind::block}) {
      const Model model(small_llama(), DType::f32, Purpose::training, {});
      StepShape shape;
      shape.sequences = 2;
      shape.sequence_length = 512;
      shape.micro_batches = 2;
      shape.order = order;
      shape.recompute = {kind, 4};
      const TrainingProgram training = record_training(model, shape);
      const Program* const program = &training.program;
      const Layout layout = lay_out({&program, 1}, model.state(), 4096);
      const std::int64_t pages = in_memory_pages(layout, 0);
      EXPECT_LT(pages, last_pages) << name_of(order) << ", " << name_of(kind);
      last_pages = pages;
    }
  }
}

StepRates rates_of(const Program& program, double disk_speed) {
  StepRates rates;
  for (const Op& op : program.ops) {
    std::vector<ValueType> reads;
    std::vector<ValueType> writes;
    for (const Operand& read : op.reads) reads.push_back(program.type_of(read));
    for (const Operand& write : op.writes) writes.push_back(program.type_of(write));
    const Cost cost = op.spec->cost(op.attrs, reads, writes);
    rates.op_seconds.push_back(5e-6 + std::max(cost.flops / 2e11, cost.bytes / 2e10));
  }
  rates.read_bytes_per_second = 1.5e9 * disk_speed;
  rates.write_bytes_per_second = 1.0e9 * disk_speed;
  rates.mixed_bytes_per_second = 1.2e9 * disk_speed;
  rates.compute_slowdown = 1.04;
  return rates;
}

TrainOptions on_a_slow_disk(const ScratchFolder& folder) {
  TrainOptions options = llama_in_pieces(folder, R"({"disks": [{"read_bytes_per_second": 1e8}]})");
  options.page_size_bytes = 65536;
  return options;
}

// In the middle between the smallest budget and the step's need, without clipping.
TrainOptions half_in_memory(const ScratchFolder& folder) {
  TrainOptions options = on_a_slow_disk(folder);
  options.max_grad_norm = 0;
  if (under_sanitizer) options.order = "layer";
  const PlanReport report = run_plan(options);
  options.memory_bytes = (report.min_memory_bytes + report.in_memory_bytes) / 2;
  return options;
}

// Of a run as it is set up: choices that differ in nothing else have other plans.
TEST(ChoiceOfARun, WhatIsLeftToWhatWasChangedLastIsInThePlan) {
  const ScratchFolder folder;
  TrainOptions options = half_in_memory(folder);
  const TrainingSetup setup(options);
  EXPECT_EQ(setup.choices.settling, setup.work.choice.settling);
  int others = 0;
  for (const WorkTried& tried : setup.work.tried) {
    WorkChoice usual = tried.choice;
    usual.settling = default_settling;
    for (const WorkTried& other : setup.work.tried) {
      others += other.choice == usual && other.score.seconds != tried.score.seconds ? 1 : 0;
    }
  }
  EXPECT_GT(others, 0);
  options.policy = "farthest";
  const TrainingSetup forced(options);
  for (const WorkTried& tried : forced.work.tried) EXPECT_EQ(tried.choice.settling, default_settling);
}

// Though the Programs that it was planned from were those of the choice before.
TEST(ChoiceOfARun, EachIsScoredAsWhereItIsAskedFor) {
  const ScratchFolder folder;
  const TrainOptions options = half_in_memory(folder);
  int compared = 0;
  int deferred = 0;
  for (const WorkTried& tried : TrainingSetup(options).work.tried) {
    const WorkChoice& choice = tried.choice;
    if (choice.pinned > 0 || choice.settling != default_settling) continue;
    if (under_sanitizer && compared > 3) break;
    TrainOptions asked = options;
    asked.order = name_of(choice.order);
    asked.recompute = fmt::format("{}:{}", name_of(choice.recompute.kind), choice.recompute.layers);
    asked.policy = name_of(choice.policy);
    asked.deferred_layers = choice.deferred_layers;
    const WorkTried alone = TrainingSetup(asked).work.tried.front();
    ASSERT_EQ(alone.choice, choice) << describe(alone.choice) << ", asked for " << describe(choice);
    EXPECT_EQ(alone.score.seconds, tried.score.seconds) << describe(choice);
    EXPECT_EQ(alone.score.slow_disk_seconds, tried.score.slow_disk_seconds) << describe(choice);
    EXPECT_EQ(alone.score.read_bytes, tried.score.read_bytes) << describe(choice);
    EXPECT_EQ(alone.score.write_bytes(), tried.score.write_bytes()) << describe(choice);
    ++compared;
    deferred += choice.deferred_layers > 0 ? 1 : 0;
  }
  EXPECT_GT(compared, 3);
  if (!under_sanitizer) {
    EXPECT_GT(deferred, 0);
  }
}

// An estimate begins near another choice, but does not stay with what that one had to recompute.
TEST(ChoiceOfARun, NearAnotherOneRecomputesNothingWhereThatMovesNothing) {
  const ScratchFolder folder;
  TrainOptions options = on_a_slow_disk(folder);
  options.memory_bytes = run_plan(options).in_memory_bytes;
  WorkChoice near;
  near.order = WorkOrder::by_micro_batch;
  near.recompute = {RecomputeKind::block, 2};
  const TrainingSetup setup(options, &near);
  EXPECT_TRUE(setup.work.score.moves_nothing());
  EXPECT_EQ(setup.work.choice.recompute.kind, RecomputeKind::none);
  EXPECT_EQ(setup.work.choice.order, WorkOrder::by_micro_batch);
}

// With whatever is recomputed, in whichever order: of the memory that is told, less is too little, and with all of it
// nothing moves.
TEST(BudgetsOfARun, AreTheLeastOfAllThatMayBeChosen) {
  const ScratchFolder folder;
  TrainOptions options = on_a_slow_disk(folder);
  options.per_device_train_batch_size = 32;
  options.max_seq_len = 64;
  options.gradient_accumulation_steps = 2;
  options.max_grad_norm = 0;
  options.memory_bytes = mib;
  const PlanReport whole = run_plan(options);
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
  std::int64_t in_memory = smallest;
  std::int64_t by_layer_in_memory = 0;
  for (const char* const order : {"layer", "micro-batch"}) {
    for (const char* const recompute : {"none", "cheap", "attention", "block"}) {
      TrainOptions asked = options;
      asked.order = order;
      asked.recompute = recompute;
      const PlanReport report = run_plan(asked);
      smallest = std::min(smallest, report.min_memory_bytes);
      if (recompute == std::string("none")) in_memory = std::min(in_memory, report.in_memory_bytes);
      if (recompute == std::string("none") && order == std::string("layer")) {
        by_layer_in_memory = report.in_memory_bytes;
        EXPECT_GT(report.min_memory_bytes, whole.min_memory_bytes) << "this test needs a choice that takes less";
      }
    }
  }
  EXPECT_EQ(whole.min_memory_bytes, smallest);
  EXPECT_EQ(whole.in_memory_bytes, in_memory);
  EXPECT_LT(in_memory, by_layer_in_memory);
  options.memory_bytes = smallest;
  EXPECT_TRUE(run_plan(options).fits);
  options.memory_bytes = in_memory;
  const PlanReport report = run_plan(options);
  EXPECT_TRUE(report.fits);
  EXPECT_EQ(report.disk_write_bytes_per_step + report.disk_read_bytes_per_step, 0);
  EXPECT_EQ(report.work, "by micro-batch");
}

// What deferred steps make again, since they need more, is not made again where they need not be deferred.
TEST(BudgetsOfARun, WithAllInMemoryNothingIsRecomputedForAnotherWay) {
  const ScratchFolder folder;
  TrainOptions options = on_a_slow_disk(folder);
  options.max_seq_len = 64;
  for (const auto& [sequences, micro_batches] : cases(std::vector<std::pair<int, int>>{{8, 4}, {8, 2}, {16, 8}})) {
    options.per_device_train_batch_size = sequences;
    options.gradient_accumulation_steps = micro_batches;
    options.memory_bytes = mib;
    options.memory_bytes = run_plan(options).in_memory_bytes;
    const PlanReport report = run_plan(options);
    EXPECT_EQ(report.disk_write_bytes_per_step + report.disk_read_bytes_per_step, 0) << micro_batches;
    EXPECT_EQ(report.work, "by micro-batch") << micro_batches;
    EXPECT_EQ(report.clip, "after") << micro_batches;
  }
}

// As there is nothing to update early.
TEST(BudgetsOfARun, WithAllInMemoryNoWayThatIsAskedForMovesAnything) {
  const ScratchFolder folder;
  TrainOptions options = on_a_slow_disk(folder);
  options.clip_mode = "speculative";
  options.memory_bytes = std::int64_t{1} << 30;
  const PlanReport report = run_plan(options);
  EXPECT_EQ(report.disk_write_bytes_per_step, 0);
  EXPECT_EQ(report.clip, "after");
}

// Policies that published systems follow, for comparison, are never faster than what we choose, in virtual time.
TEST(Policies, NoneIsFasterThanWhatIsChosen) {
  const Model model(small_llama(), DType::f32, Purpose::training, {});
  for (const double speed : cases(std::vector{0.02, 0.3, 2.0})) {
    for (const double share : cases(std::vector{0.0, 0.75, 0.25, 0.95})) {
      const auto score = [&](const WorkChoice& choice) {
        StepShape shape;
        shape.sequences = 1;
        shape.sequence_length = 128;
        shape.micro_batches = 3;
        shape.order = choice.order;
        shape.recompute = choice.recompute;
        const TrainingProgram training = record_training(model, shape);
        const Program* const program = &training.program;
        const Layout layout = lay_out({&program, 1}, model.state(), 4096);
        PlanRequest request;
        request.policy = choice.policy;
        request.settling = choice.settling;
        const std::int64_t smallest = smallest_pages(layout);
        const auto room = static_cast<double>(in_memory_pages(layout, 0) - smallest);
        const Plan plan = make_plan(layout, 0, smallest + static_cast<std::int64_t>(share * room), request);
        const Timeline timeline = simulate_steady(plan, layout, rates_of(training.program, speed));
        WorkScore result;
        result.fits = true;
        result.seconds = timeline.seconds;
        result.stalled_seconds = timeline.stalled_seconds;
        result.read_bytes = plan.traffic.read_bytes;
        result.local_write_bytes = plan.traffic.write_bytes;
        return result;
      };
      const WorkChosen chosen = choose_work({.layers = 4, .micro_batches = 3}, score);
      for (const Policy policy : all_policies) {
        EXPECT_LE(chosen.score.seconds, 1.011 * score({.policy = policy}).seconds)
            << "disk " << speed << ", share " << share << ": " << name_of(policy) << " against "
            << describe(chosen.choice);
      }
    }
  }
}

}  // namespace
}  // namespace spillway
