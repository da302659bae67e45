// Recomputation on small steps: layers of a matrix product and two cheap ops, y = act(norm(x) * w) + x.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "made_ops.h"
#include "program/recompute.h"
#include "program/record.h"

namespace spillway {
namespace {

const OpSpec sum_gradients_spec = made_op("sum_gradients", like_first);
const OpSpec norm_dx_spec = made_op("norm_dx", like_first);           // of x, y, dy
const OpSpec activate_dx_spec = made_op("activate_dx", like_first);   // of x, dy
const OpSpec multiply_dx_spec = made_op("multiply_dx", like_first);   // of dy, w
const OpSpec multiply_dw_spec = made_op("multiply_dw", like_second);  // of x, w, dy, accumulator

void differentiate_norm(Gradient& g) {
  g.add(0, g.recorder().record1(norm_dx_spec, {}, {g.read(0), g.write(0), g.of_write(0)}));
}
void differentiate_activate(Gradient& g) {
  g.add(0, g.recorder().record1(activate_dx_spec, {}, {g.read(0), g.of_write(0)}));
}
void differentiate_multiply(Gradient& g) {
  if (g.wants(0)) g.add(0, g.recorder().record1(multiply_dx_spec, {}, {g.of_write(0), g.read(1)}));
  g.set_accumulator(
      1, g.recorder().record1(multiply_dw_spec, {}, {g.read(0), g.read(1), g.of_write(0), g.accumulator(1)}));
}
void differentiate_add(Gradient& g) {
  for (const int i : {0, 1}) {
    if (g.wants(i)) g.add(i, g.of_write(0));
  }
}

const OpSpec norm_spec = made_op("norm", like_first, differentiate_norm);
const OpSpec activate_spec = made_op("activate", like_first, differentiate_activate);
const OpSpec add_spec = made_op("add", like_first, differentiate_add);
const OpSpec multiply_spec = [] {
  OpSpec made = made_op("multiply", like_first, differentiate_multiply);
  made.multiplies = true;
  return made;
}();

constexpr int layers = 3;
constexpr int micro_batches = 2;

class RecomputeTest : public testing::Test {
 protected:
  // Parts "attention" and "mlp" of each layer; the first part reads a product of what it keeps nothing of.
  RecomputeTest() {
    Recorder recorder(program_, state_);
    std::vector<Operand> x;
    for (int m = 0; m < micro_batches; ++m) x.push_back(recorder.input(activation));
    const TensorId first = tensor("first");
    for (int m = 0; m < micro_batches; ++m) {
      recorder.label({Phase::forward, -1, m, "embedding", 0});
      x[at(m)] = recorder.record1(multiply_spec, {}, {x[at(m)], recorder.state_tensor(first)});
    }
    for (int layer = 0; layer < layers; ++layer) {
      for (const std::string_view part : {"attention", "mlp"}) {
        const TensorId w = tensor(std::string(part) + std::to_string(layer));
        for (int m = 0; m < micro_batches; ++m) {
          recorder.label({Phase::forward, layer, m, part, 0});
          const Operand n = recorder.record1(norm_spec, {}, {x[at(m)]});
          const Operand h = recorder.record1(multiply_spec, {}, {n, recorder.state_tensor(w)});
          const Operand a = recorder.record1(activate_spec, {}, {h});
          const Operand b = recorder.record1(multiply_spec, {}, {a, recorder.state_tensor(w)});
          x[at(m)] = recorder.record1(add_spec, {}, {x[at(m)], b});
        }
      }
    }
    std::vector<Recorder::Seed> seeds;
    for (const Operand& end : x) seeds.push_back({end, recorder.input(activation)});
    recorder.backward(seeds, sum_gradients_spec, [](const Label&) {});
  }

  static std::size_t at(int m) { return static_cast<std::size_t>(m); }

  TensorId tensor(const std::string& name) {
    Tensor tensor;
    tensor.name = name;
    tensor.rows = 8;
    tensor.cols = 8;
    tensor.trainable = true;
    return state_.add(tensor, reduction_block_elements);
  }

  Program remade(RecomputeKind kind, int of_layers = layers) const {
    Program program = program_;
    recompute(program, {kind, of_layers});
    return program;
  }

  // What each op computes, as a term over inputs and state, in the order of the ops that backward ends in.
  static std::vector<std::string> results(const Program& program) {
    std::map<std::size_t, std::string> terms;
    std::vector<std::string> gradients;
    for (const Op& op : program.ops) {
      std::string term(op.spec->name);
      for (const Operand& read : op.reads) {
        const auto known = terms.find(index_of(read.first));
        if (!read.exists()) {
          term += " -";
        } else if (known != terms.end()) {
          term += " (" + std::to_string(std::hash<std::string>()(known->second)) + ")";
        } else {
          EXPECT_NE(program.value(read.first).kind, ValueKind::local) << term << " reads what nothing wrote";
          term += " %" + std::to_string(index_of(read.first));
        }
      }
      terms[index_of(op.writes.front().first)] = term;
      if (op.label.phase == Phase::backward && op.spec->gradient == nullptr) gradients.push_back(term);
    }
    return gradients;
  }

  // Forward values that backward reads, and so are kept.
  static std::size_t kept(const Program& program) {
    std::map<std::size_t, Phase> written_in;
    std::set<std::size_t> values;
    for (const Op& op : program.ops) {
      for (const Operand& read : op.reads) {
        const auto maker = written_in.find(index_of(read.first));
        if (maker != written_in.end() && maker->second == Phase::forward && op.label.phase != Phase::forward) {
          values.insert(maker->first);
        }
      }
      written_in[index_of(op.writes.front().first)] = op.label.phase;
    }
    return values.size();
  }

  static std::size_t count(const Program& program, const OpSpec& spec) {
    return static_cast<std::size_t>(
        std::count_if(program.ops.begin(), program.ops.end(), [&](const Op& op) { return op.spec == &spec; }));
  }

  State state_;
  Program program_;
};

constexpr std::size_t parts = 2 * layers * micro_batches;

TEST_F(RecomputeTest, EveryKindComputesTheSameTerms) {
  for (const RecomputeKind kind : {RecomputeKind::cheap, RecomputeKind::attention, RecomputeKind::block}) {
    for (int of_layers = 0; of_layers <= layers; ++of_layers) {
      EXPECT_EQ(results(remade(kind, of_layers)), results(program_)) << name_of(kind) << " of " << of_layers;
    }
  }
}

TEST_F(RecomputeTest, EachKindKeepsLessThanTheOneBefore) {
  // A part's input, norm, product and activation are read in backward.
  EXPECT_EQ(kept(program_), 4 * parts);
  EXPECT_EQ(kept(remade(RecomputeKind::cheap)), 2 * parts) << "its input and product";
  EXPECT_EQ(kept(remade(RecomputeKind::attention)), (1 + 2) * parts / 2) << "of attention its input";
  EXPECT_EQ(kept(remade(RecomputeKind::block)), parts / 2) << "the input of a layer";
}

TEST_F(RecomputeTest, WhatIsCheapIsMadeAgainAndNoProduct) {
  const Program program = remade(RecomputeKind::cheap);
  EXPECT_EQ(count(program, norm_spec), 2 * parts);
  EXPECT_EQ(count(program, activate_spec), 2 * parts);
  EXPECT_EQ(count(program, multiply_spec), count(program_, multiply_spec));
  EXPECT_EQ(count(program, add_spec), parts) << "one of its reads is not there in backward";
}

TEST_F(RecomputeTest, NothingIsMadeThatBackwardDoesNotRead) {
  const Program program = remade(RecomputeKind::block);
  // Of a layer, all but what makes its output: the last product and sum of the mlp.
  EXPECT_EQ(count(program, multiply_spec), count(program_, multiply_spec) + parts / 2 * 3);
  EXPECT_EQ(count(program, add_spec), parts + parts / 2);
}

TEST_F(RecomputeTest, OnlyTheFirstLayersAreMadeAgain) {
  const Program program = remade(RecomputeKind::block, 1);
  std::set<std::int32_t> made;
  for (const Op& op : program.ops) {
    if (op.label.phase == Phase::recompute) made.insert(op.label.layer);
  }
  EXPECT_EQ(made, std::set<std::int32_t>{0});
  EXPECT_EQ(kept(program), 4 * parts - 7 * micro_batches);
}

TEST_F(RecomputeTest, AnotherPartIsMadeInASegmentOfItsOwnBeforeTheOneThatReadsIt) {
  const Program program = remade(RecomputeKind::block);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.label.phase == Phase::recompute) {
      EXPECT_EQ(op.label.part, "attention");
    }
    if (op.label.phase == Phase::backward && op.spec->gradient != nullptr) {
      EXPECT_EQ(op.label.part, "mlp") << "attention is there already when its own backward comes";
    }
  }
}

}  // namespace
}  // namespace spillway
