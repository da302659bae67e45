// Which gradients of a step are rounded by the products that make them.
#include <gtest/gtest.h>

#include <set>

#include "model/model.h"
#include "ops/linear/linear.h"
#include "ops/round/round.h"
#include "session/step_programs.h"

namespace spillway {
namespace {

ModelConfig untied_llama() {
  ModelConfig config;
  config.vocab_size = 300;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.max_position_embeddings = 64;
  config.tie_word_embeddings = false;
  return config;
}

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
    Model model(untied_llama(), DType::bf16, Purpose::training, Cut{});
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

}  // namespace
}  // namespace spillway
