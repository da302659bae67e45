// Which gradients of a step are rounded by the products that make them, and which are made late.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "model/model.h"
#include "ops/linear/linear.h"
#include "ops/round/round.h"
#include "session/step_programs.h"
#include "tiny_llama.h"

namespace spillway {
namespace {

class RoundedGradients : public testing::TestWithParam<UpdateWay> {
 protected:
  // By op of the usual step: what linear_dw write, and what is rounded apart.
  struct Counted {
    int rounded = 0;
    int sums = 0;           // f32, of one product
    int kept = 0;           // of the rounded, versions of a kept gradient
    int rounded_apart = 0;  // of what a product made
  };
  static Counted count(std::int64_t micro_batches) {
    Model model(tiny_llama(), DType::bf16, Purpose::training, Cut{});
    const PieceSet all = all_weights(model.state());
    const StepPrograms steps = record_steps(model, {1, 32, micro_batches}, {GetParam()}, all, all);
    const Program& program = steps.usual().program;
    Counted counted;
    std::set<ValueId> made;
    for (const Op& op : program.ops) {
      if (op.spec == &round_to_bf16_spec && made.contains(op.reads[0].first)) ++counted.rounded_apart;
      if (op.spec != &linear_dw_spec) continue;
      const Value& value = program.value(op.writes[0].first);
      made.insert(op.writes[0].first);
      const bool rounded = value.type.dtype == DType::bf16;
      ++(rounded ? counted.rounded : counted.sums);
      counted.kept += rounded && value.kind == ValueKind::state_out ? 1 : 0;
    }
    return counted;
  }
};

TEST_P(RoundedGradients, AreThoseThatNothingIsAddedTo) {
  const Counted alone = count(1);
  EXPECT_EQ(alone.rounded, 2 * 7 + 1) << "seven matrices a layer, and the head";
  EXPECT_EQ(alone.sums, 0);
  EXPECT_EQ(alone.rounded_apart, 0);
  const bool keeps = GetParam() == UpdateWay::speculative || GetParam() == UpdateWay::deferred;
  EXPECT_EQ(alone.kept, keeps ? alone.rounded : 0);
  const Counted added = count(2);
  EXPECT_EQ(added.rounded, 0);
  EXPECT_EQ(added.sums, 2 * alone.rounded);
  EXPECT_EQ(added.rounded_apart, alone.rounded);
}

INSTANTIATE_TEST_SUITE_P(Ways, RoundedGradients,
                         testing::Values(UpdateWay::during, UpdateWay::after, UpdateWay::speculative,
                                         UpdateWay::deferred),
                         [](const auto& test) { return std::string(name_of(test.param)); });

// By tile of a tied head: the phases in which products add to its gradient. 8192 ids of 32 in tiles of one block.
std::map<ValueId, std::vector<Phase>> head_products(bool tied, bool late, std::int64_t tokens,
                                                    std::int64_t micro_batches) {
  ModelConfig config = tiny_llama();
  config.vocab_size = 8192;
  config.tie_word_embeddings = tied;
  Model model(config, DType::bf16, Purpose::training, {reduction_block_elements, reduction_block_elements});
  const PieceSet all = all_weights(model.state());
  StepShape shape{1, tokens, micro_batches};
  shape.late_head_gradient = late;
  const StepPrograms steps = record_steps(model, shape, {UpdateWay::during}, all, all);
  const Program& program = steps.usual().program;
  std::map<ValueId, std::vector<Phase>> phases;  // by the first value of a tile's gradients of logits
  for (const Op& op : program.ops) {
    if (op.spec != &linear_dw_spec || program.type_of(op.reads[1]).cols != 2048) continue;
    phases[op.reads[1].first].push_back(op.label.phase);
  }
  return phases;
}

TEST(LateHeadGradient, IsMadeInBackwardWhereItTakesLessMemoryThanTheSum) {
  const auto all_in = [](const std::map<ValueId, std::vector<Phase>>& products, Phase phase) {
    return !products.empty() &&
           std::ranges::all_of(products, [&](const auto& of) { return of.second == std::vector{phase}; });
  };
  EXPECT_EQ(head_products(true, true, 63, 1).size(), 4U) << "tiles";
  EXPECT_TRUE(all_in(head_products(true, true, 63, 1), Phase::backward)) << "63 tokens of 2 bytes, 32 columns of 4";
  EXPECT_TRUE(all_in(head_products(true, true, 64, 1), Phase::head)) << "as much as the sum, and what the head reads";
  EXPECT_TRUE(all_in(head_products(true, true, 21, 2), Phase::head)) << "two micro-batches have one sum";
  EXPECT_TRUE(all_in(head_products(true, false, 63, 1), Phase::head)) << "off";
  EXPECT_TRUE(all_in(head_products(false, true, 63, 1), Phase::head)) << "nothing is added to it later";
}

}  // namespace
}  // namespace spillway
