// Backward as the recorder derives it, on ops of this test: y = apply(x, w), z = mix(x, y).
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "made_ops.h"
#include "program/record.h"

namespace spillway {
namespace {

const OpSpec sum_spec = made_op("sum", like_first);
const OpSpec input_gradient_spec = made_op("input_gradient", like_first);     // of y, w
const OpSpec weight_gradient_spec = made_op("weight_gradient", like_second);  // of y, w, accumulator
const OpSpec mix_gradient_spec = made_op("mix_gradient", like_first);

void differentiate_apply(Gradient& g) {
  const Operand of_y = g.of_write(0);
  if (g.wants(1)) {
    g.set_accumulator(1, g.recorder().record1(weight_gradient_spec, {}, {of_y, g.read(1), g.accumulator(1)}));
  }
  if (g.wants(0)) g.add(0, g.recorder().record1(input_gradient_spec, {}, {of_y, g.read(1)}));
}

void differentiate_mix(Gradient& g) {
  const Operand of_z = g.of_write(0);
  for (const int i : {0, 1}) {
    if (g.wants(i)) g.add(i, g.recorder().record1(mix_gradient_spec, {}, {of_z}));
  }
}

const OpSpec apply_spec = made_op("apply", like_first, differentiate_apply);
const OpSpec mix_spec = made_op("mix", like_first, differentiate_mix);

class Record : public testing::Test {
 protected:
  TensorId tensor(const std::string& name, bool trainable) {
    Tensor tensor;
    tensor.name = name;
    tensor.rows = 8;
    tensor.cols = 8;
    tensor.trainable = trainable;
    return state_.add(tensor, reduction_block_elements);
  }

  Operand apply(Operand x, TensorId w) { return recorder_.record1(apply_spec, {}, {x, recorder_.state_tensor(w)}); }
  Operand mix(Operand x, Operand y) { return recorder_.record1(mix_spec, {}, {x, y}); }

  void label(std::int32_t layer, std::int32_t micro_batch) {
    recorder_.label({Phase::forward, layer, micro_batch, "part", 0});
  }

  // Backward from `ends`, whose gradients are inputs; the labels of parts in the order they were done.
  std::vector<Label> backward(const std::vector<Operand>& ends) {
    forward_ops_ = program_.ops.size();
    std::vector<Recorder::Seed> seeds;
    for (const Operand& end : ends) seeds.push_back({end, recorder_.input(activation)});
    std::vector<Label> parts;
    recorder_.backward(seeds, sum_spec, [&](const Label& part) { parts.push_back(part); });
    return parts;
  }

  std::vector<std::string> backward_ops() const {
    std::vector<std::string> names;
    for (std::size_t i = forward_ops_; i < program_.ops.size(); ++i) names.emplace_back(program_.ops[i].spec->name);
    return names;
  }

  State state_;
  Program program_;
  Recorder recorder_{program_, state_};
  std::size_t forward_ops_ = 0;
};

TEST_F(Record, PartsGoBackwardAndMicroBatchesForward) {
  const TensorId weights[] = {tensor("a", true), tensor("b", true), tensor("c", true)};
  std::vector<Operand> x;
  for (int m = 0; m < 3; ++m) x.push_back(recorder_.input(activation));
  for (int layer = 0; layer < 3; ++layer) {
    for (int m = 0; m < 3; ++m) {
      label(layer, m);
      x[static_cast<std::size_t>(m)] = apply(x[static_cast<std::size_t>(m)], weights[layer]);
    }
  }
  const std::vector<Label> parts = backward(x);
  ASSERT_EQ(parts.size(), 3U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(parts[static_cast<std::size_t>(i)].layer, 2 - i);
  std::vector<std::pair<int, int>> order;
  for (std::size_t i = forward_ops_; i < program_.ops.size(); ++i) {
    const Label& label = program_.ops[i].label;
    EXPECT_EQ(label.phase, Phase::backward);
    const std::pair<int, int> at{label.layer, label.micro_batch};
    if (order.empty() || order.back() != at) order.push_back(at);
  }
  const std::vector<std::pair<int, int>> expected = {{2, 0}, {2, 1}, {2, 2}, {1, 0}, {1, 1},
                                                     {1, 2}, {0, 0}, {0, 1}, {0, 2}};
  EXPECT_EQ(order, expected);
}

TEST_F(Record, OpsOfASegmentGoLastToFirst) {
  const TensorId a = tensor("a", true);
  const TensorId b = tensor("b", true);
  label(0, 0);
  const Operand y = apply(recorder_.input(activation), a);
  const Operand z = apply(y, b);
  backward({z});
  EXPECT_EQ(backward_ops(), (std::vector<std::string>{"weight_gradient", "input_gradient", "weight_gradient"}));
  EXPECT_EQ(program_.ops[forward_ops_].reads[1], recorder_.state_tensor(b));
  EXPECT_EQ(program_.ops[forward_ops_ + 2].reads[1], recorder_.state_tensor(a));
}

TEST_F(Record, AccumulatorsChainInTheOrderOfMicroBatches) {
  const TensorId w = tensor("w", true);
  std::vector<Operand> ends;
  for (int m = 0; m < 4; ++m) {
    label(0, m);
    ends.push_back(apply(recorder_.input(activation), w));
  }
  backward(ends);
  Operand before;
  for (std::size_t i = forward_ops_; i < program_.ops.size(); ++i) {
    const Op& op = program_.ops[i];
    ASSERT_EQ(op.spec, &weight_gradient_spec);
    EXPECT_EQ(op.label.micro_batch, static_cast<std::int32_t>(i - forward_ops_));
    EXPECT_EQ(op.reads[2], before) << "absent at first, then what the micro-batch before left";
    before = op.writes[0];
  }
  EXPECT_EQ(recorder_.accumulator(recorder_.state_tensor(w)), before);
}

TEST_F(Record, GradientsOfAValueThatIsReadTwiceAreAdded) {
  const TensorId w = tensor("w", true);
  label(0, 0);
  const Operand y = apply(recorder_.input(activation), w);
  const Operand z = mix(y, y);
  backward({z, y});
  EXPECT_EQ(backward_ops(),
            (std::vector<std::string>{"mix_gradient", "sum", "mix_gradient", "sum", "weight_gradient"}));
  EXPECT_EQ(program_.ops.back().reads[0], program_.ops[program_.ops.size() - 2].writes[0]) << "the whole sum";
}

TEST_F(Record, OnlyPathsToTrainableTensorsAreRecorded) {
  const TensorId frozen = tensor("frozen", false);
  const TensorId w = tensor("w", true);
  const TensorId after = tensor("after", false);
  label(0, 0);
  const Operand x = apply(recorder_.input(activation), frozen);  // nothing trainable behind it
  label(1, 0);
  const Operand y = apply(x, w);
  label(2, 0);
  const Operand z = apply(y, after);  // frozen, but on the way
  label(3, 0);
  apply(z, w);  // its result reaches no seed
  backward({z});
  EXPECT_EQ(backward_ops(), (std::vector<std::string>{"input_gradient", "weight_gradient"}));
  EXPECT_FALSE(recorder_.accumulator(recorder_.state_tensor(frozen)).exists());
  EXPECT_FALSE(recorder_.accumulator(recorder_.state_tensor(after)).exists());
}

TEST_F(Record, ATensorIsCompleteWhereItWasFirstUsed) {
  const TensorId tied = tensor("tied", true);
  const TensorId w = tensor("w", true);
  label(0, 0);
  const Operand x = apply(recorder_.input(activation), tied);
  label(1, 0);
  const Operand y = apply(x, w);
  label(2, 0);
  const Operand z = apply(y, tied);
  std::map<int, std::vector<Operand>> complete;
  recorder_.backward(std::vector<Recorder::Seed>{{z, recorder_.input(activation)}}, sum_spec,
                     [&](const Label& part) { complete[part.layer] = recorder_.accumulated_in(part); });
  EXPECT_TRUE(complete[2].empty());
  EXPECT_EQ(complete[1], std::vector<Operand>{recorder_.state_tensor(w)});
  EXPECT_EQ(complete[0], std::vector<Operand>{recorder_.state_tensor(tied)});
}

// Each micro-batch forward and backward before the next; the last with all that is left.
std::vector<Label> backward_one_by_one(Recorder& recorder, int micro_batches,
                                       const std::function<Operand(int micro_batch)>& forward) {
  std::vector<Label> parts;
  for (int m = 0; m < micro_batches; ++m) {
    const Operand end = forward(m);
    const std::vector<Recorder::Seed> seeds{{end, recorder.input(activation)}};
    if (m + 1 < micro_batches) {
      recorder.backward_of(m, seeds, sum_spec);
    } else {
      recorder.backward(seeds, sum_spec, [&](const Label& part) { parts.push_back(part); });
    }
  }
  return parts;
}

TEST_F(Record, OneMicroBatchCanGoBackwardBeforeTheNextGoesForward) {
  const TensorId weights[] = {tensor("a", true), tensor("b", true)};
  const std::vector<Label> parts = backward_one_by_one(recorder_, 3, [&](int m) {
    Operand x = recorder_.input(activation);
    for (int layer = 0; layer < 2; ++layer) {
      label(layer, m);
      x = apply(x, weights[layer]);
    }
    return x;
  });
  std::vector<std::pair<int, int>> order;  // of weight gradients: layer and micro-batch
  std::map<int, Operand> before;
  for (const Op& op : program_.ops) {
    if (op.spec != &weight_gradient_spec) continue;
    order.emplace_back(op.label.layer, op.label.micro_batch);
    EXPECT_EQ(op.reads[2], before.contains(op.label.layer) ? before[op.label.layer] : Operand{});
    before[op.label.layer] = op.writes[0];
  }
  const std::vector<std::pair<int, int>> expected = {{1, 0}, {0, 0}, {1, 1}, {0, 1}, {1, 2}, {0, 2}};
  EXPECT_EQ(order, expected);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].layer, 1) << "done, last to first, once the last micro-batch has passed";
  EXPECT_EQ(parts[1].layer, 0);
}

TEST_F(Record, ASharedTensorIsSummedInTheSameOrderWhicheverMicroBatchGoesFirst) {
  const TensorId tied = tensor("tied", true);
  const TensorId w = tensor("w", true);
  backward_one_by_one(recorder_, 2, [&](int m) {
    label(0, m);
    Operand x = apply(recorder_.input(activation), tied);
    label(1, m);
    x = apply(x, w);
    recorder_.label({Phase::head, -1, m, "head", 0});
    const Operand state = recorder_.state_tensor(tied);
    const Operand z = recorder_.record1(apply_spec, {}, {x, state});
    // The head has no walk of its own: it adds to its accumulators while it is recorded.
    recorder_.set_accumulator(state,
                              recorder_.record1(weight_gradient_spec, {}, {z, state, recorder_.accumulator(state)}));
    return x;
  });
  std::vector<std::pair<Phase, int>> order;
  for (const Op& op : program_.ops) {
    if (op.spec == &weight_gradient_spec && op.reads[1] == recorder_.state_tensor(tied)) {
      order.emplace_back(op.label.phase, op.label.micro_batch);
    }
  }
  const std::vector<std::pair<Phase, int>> expected = {
      {Phase::head, 0}, {Phase::head, 1}, {Phase::backward, 0}, {Phase::backward, 1}};
  EXPECT_EQ(order, expected);
}

TEST_F(Record, AContributionThatWaitsIsMadeBeforeTheNextAndAfterThoseBefore) {
  const TensorId tied = tensor("tied", true);
  label(0, 0);
  const Operand x = apply(recorder_.input(activation), tied);
  const Operand state = recorder_.state_tensor(tied);
  const auto contribute = [&] {
    const Operand sum = recorder_.record1(weight_gradient_spec, {}, {x, state, recorder_.accumulator(state)});
    recorder_.set_accumulator(state, sum);
    return sum;
  };
  const Operand before = contribute();
  Operand waited;
  recorder_.contribute_later(state, [&] { waited = contribute(); });
  EXPECT_FALSE(waited.exists());
  backward({x});
  ASSERT_EQ(backward_ops(), (std::vector<std::string>(2, "weight_gradient")));
  EXPECT_EQ(program_.ops[forward_ops_].reads[2], before);
  EXPECT_EQ(program_.ops[forward_ops_].writes[0], waited);
  EXPECT_EQ(program_.ops[forward_ops_ + 1].reads[2], waited);
  EXPECT_EQ(program_.ops[forward_ops_].label.phase, Phase::backward);
}

TEST_F(Record, ANewVersionReplacesThePieceFromThereOn) {
  const TensorId w = tensor("w", true);
  const Operand old = recorder_.state_tensor(w);
  const Operand fresh = recorder_.new_version(state_.first_piece(w));
  EXPECT_NE(old, fresh);
  EXPECT_EQ(recorder_.state_tensor(w), fresh);
  EXPECT_EQ(program_.value(fresh.first).kind, ValueKind::state_out);
  EXPECT_EQ(program_.value(old.first).piece, program_.value(fresh.first).piece);
  EXPECT_EQ(program_.value(old.first).type, program_.value(fresh.first).type);
}

TEST_F(Record, AWeightIsTheRunOfItsPieces) {
  Tensor large;
  large.name = "large";
  large.rows = 200;
  large.cols = 1024;
  const TensorId id = state_.add(large, reduction_block_elements);
  const Operand whole = recorder_.state_tensor(id);
  EXPECT_EQ(whole.count, state_.piece_count(id));
  EXPECT_GT(whole.count, 1);
  EXPECT_EQ(program_.type_of(whole), (ValueType{DType::f32, 200, 1024}));
  const Operand second = recorder_.state_pieces(id, 1, 1);
  EXPECT_EQ(index_of(second.first), index_of(whole.first) + 1);
}

TEST_F(Record, EveryValueIsWrittenOnceAndBeforeItIsRead) {
  const TensorId a = tensor("a", true);
  const TensorId b = tensor("b", true);
  std::vector<Operand> ends;
  for (int m = 0; m < 2; ++m) {
    label(0, m);
    const Operand x = apply(recorder_.input(activation), a);
    ends.push_back(mix(apply(x, b), x));
  }
  backward(ends);
  std::set<ValueId> written;
  for (const Op& op : program_.ops) {
    for (const Operand& read : op.reads) {
      const bool local = read.exists() && program_.value(read.first).kind == ValueKind::local;
      EXPECT_TRUE(!local || written.contains(read.first)) << op.spec->name;
    }
    for (const Operand& write : op.writes) EXPECT_TRUE(written.insert(write.first).second) << op.spec->name;
  }
}

}  // namespace
}  // namespace spillway
