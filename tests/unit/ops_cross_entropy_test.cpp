#include "ops/cross_entropy/cpu.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/cross_entropy/kernel.h"
#include "ops/cross_entropy/reference.h"
#include "ops_harness.h"

namespace spillway::ops_test {
namespace {

struct Chunk {
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::vector<std::int64_t> tile_cols;
  double deviation = 1;
  DType dlogits = DType::f32;
  bool gradient = true;
  double scale = 0.125;

  std::int64_t vocabulary() const { return std::accumulate(tile_cols.begin(), tile_cols.end(), std::int64_t{0}); }
};

// Targets of the whole micro-batch, some -1, with a few rows before and after the chunk.
std::vector<double> random_targets(const Chunk& chunk, Rng& rng) {
  std::uniform_int_distribution<std::int64_t> any(-1, chunk.vocabulary() - 1);
  std::vector<double> targets;
  for (std::int64_t i = 0; i < chunk.row_begin + chunk.rows + 2; ++i) targets.push_back(static_cast<double>(any(rng)));
  targets[static_cast<std::size_t>(chunk.row_begin)] = -1;
  return targets;
}

OpCase op_of(const Chunk& chunk, const std::vector<double>& targets, const std::vector<Matrix>& tiles) {
  OpCase op{&cross_entropy_spec,
            {{"row_begin", chunk.row_begin},
             {"row_count", chunk.rows},
             {"gradient", std::int64_t{chunk.gradient}},
             {"dlogits_bf16", std::int64_t{chunk.dlogits == DType::bf16}}},
            {matrix({DType::i32, static_cast<std::int64_t>(targets.size()), 1}, targets),
             matrix({DType::f32, 1, 1}, {chunk.scale})},
            make_cross_entropy_cpu};
  op.reads.insert(op.reads.end(), tiles.begin(), tiles.end());
  return op;
}

OpCase random_case(const Chunk& chunk, Rng& rng) {
  std::vector<Matrix> tiles;
  for (const std::int64_t cols : chunk.tile_cols) {
    tiles.push_back(random_matrix(DType::f32, chunk.rows, cols, rng, chunk.deviation));
  }
  return op_of(chunk, random_targets(chunk, rng), tiles);
}

// Row `row` of several tiles, side by side.
std::vector<double> joined(std::span<const Matrix> tiles, std::int64_t row) {
  std::vector<double> out;
  for (const Matrix& tile : tiles) {
    const auto begin = tile.numbers.begin() + row * tile.type.cols;
    out.insert(out.end(), begin, begin + tile.type.cols);
  }
  return out;
}

void expect_reference(const Chunk& chunk, const OpCase& op) {
  const std::vector<Matrix> writes = run(op);
  for (std::int64_t row = 0; row < chunk.rows; ++row) {
    const auto target = static_cast<std::int32_t>(op.reads[0].numbers[static_cast<std::size_t>(chunk.row_begin + row)]);
    const std::vector<double> logits = joined(std::span(op.reads).subspan(2), row);
    const reference::TokenLoss want = reference::cross_entropy({logits.begin(), logits.end()}, target, chunk.scale);
    ASSERT_NEAR(writes[0].numbers[static_cast<std::size_t>(row)], want.loss, 2e-6 * std::max(1.0, std::abs(want.loss)))
        << "row " << row;
    if (!chunk.gradient) continue;
    const std::vector<double> got = joined(std::span(writes).subspan(1), row);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double allowed =
          (chunk.dlogits == DType::bf16 ? 1.0 / 256 : 4e-6) * std::abs(want.dlogits[i]) + 2e-7 * chunk.scale;
      ASSERT_NEAR(got[i], want.dlogits[i], allowed) << "row " << row << ", logit " << i;
    }
  }
}

// Every order and number of threads; for f32 dlogits also all tiles in place.
void expect_same_bits(const Chunk& chunk, const OpCase& op) {
  std::vector<Share> in_place;
  for (int i = 0; chunk.gradient && chunk.dlogits == DType::f32 && i < static_cast<int>(chunk.tile_cols.size()); ++i) {
    EXPECT_EQ(cross_entropy_spec.shares[static_cast<std::size_t>(i)].write, 1 + i);
    EXPECT_EQ(cross_entropy_spec.shares[static_cast<std::size_t>(i)].read, 2 + i);
    in_place.push_back(cross_entropy_spec.shares[static_cast<std::size_t>(i)]);
  }
  const auto expected = run_to_bytes(op);
  for (const int threads : {1, 2, 5}) {
    for (const std::uint64_t seed : {0, 1, 2}) {
      EXPECT_TRUE(run_to_bytes(op, {threads, seed, {}}) == expected) << threads << " threads, order " << seed;
      EXPECT_TRUE(run_to_bytes(op, {threads, seed, in_place}) == expected) << threads << " threads, in place";
    }
  }
}

TEST(CrossEntropy, FollowsTheReference) {
  Seeded seeded;
  for (Chunk chunk : {Chunk{0, 1, {1}}, Chunk{2, 7, {16}}, Chunk{0, 5, {33, 32, 7}}, Chunk{3, 70, {500, 500, 24}},
                      Chunk{0, 3, {20000, 20001}}}) {
    for (const DType dlogits : {DType::f32, DType::bf16}) {
      chunk.dlogits = dlogits;
      const OpCase op = random_case(chunk, seeded.rng);
      expect_reference(chunk, op);
      expect_same_bits(chunk, op);
    }
  }
}

TEST(CrossEntropy, TheLossAloneHasTheSameBits) {
  Seeded seeded;
  Chunk chunk{1, 40, {300, 41}};
  const OpCase with = random_case(chunk, seeded.rng);
  chunk.gradient = false;
  OpCase without = with;
  without.attrs = op_of(chunk, {}, {}).attrs;
  EXPECT_EQ(run_to_bytes(without).size(), 1U);
  EXPECT_EQ(run_to_bytes(without)[0], run_to_bytes(with)[0]);
}

TEST(CrossEntropy, ExtremeLogitsStayFinite) {
  Seeded seeded;
  Chunk chunk{0, 64, {50, 30}, 3000};
  const OpCase random = random_case(chunk, seeded.rng);
  expect_reference(chunk, random);

  chunk.rows = 2;
  std::vector<double> row(80, -1e4);
  row[17] = 1e4;
  std::vector<double> first(row.begin(), row.begin() + 50);
  std::vector<double> second(row.begin() + 50, row.end());
  first.insert(first.end(), first.begin(), first.begin() + 50);
  second.insert(second.end(), second.begin(), second.begin() + 30);
  const OpCase op = op_of(chunk, {17, 60}, {matrix({DType::f32, 2, 50}, first), matrix({DType::f32, 2, 30}, second)});
  const std::vector<Matrix> writes = run(op);
  EXPECT_EQ(writes[0].numbers[0], 0.0);
  EXPECT_EQ(writes[0].numbers[1], 2e4);
  EXPECT_EQ(writes[1].numbers[17], 0.0);
  EXPECT_EQ(writes[1].numbers[50 + 17], chunk.scale);
  EXPECT_EQ(writes[2].numbers[30 + 10], -chunk.scale);
}

TEST(CrossEntropy, RowsWithoutATargetAreZeroWhateverTheirLogits) {
  const Chunk chunk{1, 2, {3}};
  const OpCase op = op_of(chunk, {0, -1, -1, 0}, {matrix({DType::f32, 2, 3}, {std::nan(""), 1, 2, 1e38, -1e38, 0})});
  const std::vector<Matrix> writes = run(op);
  EXPECT_EQ(writes[0].numbers, std::vector<double>(2, 0.0));
  EXPECT_EQ(writes[1].numbers, std::vector<double>(6, 0.0));
}

TEST(CrossEntropy, NotANumberShowsInTheLoss) {
  const Chunk chunk{0, 1, {20}};
  std::vector<double> logits(20, 1.0);
  logits[18] = std::nan("");
  EXPECT_TRUE(std::isnan(run(op_of(chunk, {2}, {matrix({DType::f32, 1, 20}, logits)}))[0].numbers[0]));
}

TEST(CrossEntropy, DlogitsAreTheGradientOfTheLoss) {
  Seeded seeded;
  const Chunk chunk{0, 4, {9}};
  const OpCase op = random_case(chunk, seeded.rng);
  const auto loss = [&](const std::vector<double>& logits) {
    std::vector<double> losses;
    for (std::size_t row = 0; row < 4; ++row) {
      const double target = op.reads[0].numbers[row];
      double sum = 0;
      for (std::size_t i = 0; i < 9; ++i) sum += std::exp(logits[row * 9 + i]);
      losses.push_back(target < 0 ? 0 : std::log(sum) - logits[row * 9 + static_cast<std::size_t>(target)]);
    }
    return losses;
  };
  expect_close(run(op)[1], finite_difference(loss, op.reads[2].numbers, std::vector<double>(4, chunk.scale)),
               Tolerance{2e-6, 2e-6});
}

TEST(CrossEntropy, TargetsAgree) {
  Seeded seeded;
  std::vector<float> logits;
  for (const double number : random_numbers(1003, seeded.rng, 5)) logits.push_back(static_cast<float>(number));
  const auto all = [&](auto largest, auto sum, auto gradient, auto gradient_bf16) {
    const float top = largest(logits.data(), 1003);
    const double total = sum(logits.data(), 1003, top);
    std::vector<float> f32(1003);
    std::vector<bf16_t> bf16(1003);
    const SoftmaxRow row{top, static_cast<float>(1 / total), 0.01F, 77};
    gradient(f32.data(), logits.data(), 1003, row);
    gradient_bf16(bf16.data(), logits.data(), 1003, row);
    return std::tuple{top, total, f32, bf16};
  };
  if (best_isa() < Isa::avx2) GTEST_SKIP() << "no target with fused multiply-adds";
  const auto expected = all(&baseline::largest_logit, &baseline::sum_of_exp, &baseline::logits_gradient<float>,
                            &baseline::logits_gradient<bf16_t>);
  const auto fused =
      all(&avx2::largest_logit, &avx2::sum_of_exp, &avx2::logits_gradient<float>, &avx2::logits_gradient<bf16_t>);
  EXPECT_EQ(std::get<0>(fused), std::get<0>(expected));
  EXPECT_NEAR(std::get<1>(fused), std::get<1>(expected), 1e-6 * std::get<1>(expected));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float wanted = std::get<2>(expected)[i];
    ASSERT_NEAR(std::get<2>(fused)[i], wanted, 2e-6F * std::abs(wanted)) << i;
    ASSERT_NEAR(widen(std::get<3>(fused)[i]), wanted, std::abs(wanted) / 128) << i;
  }
  if (best_isa() < Isa::avx512) return;
  EXPECT_EQ(all(&avx512::largest_logit, &avx512::sum_of_exp, &avx512::logits_gradient<float>,
                &avx512::logits_gradient<bf16_t>),
            fused);
  if (best_isa() < Isa::avx512_bf16) return;
  EXPECT_EQ(all(&avx512_bf16::largest_logit, &avx512_bf16::sum_of_exp, &avx512_bf16::logits_gradient<float>,
                &avx512_bf16::logits_gradient<bf16_t>),
            fused);
}

TEST(CrossEntropy, RecordsOneOpAChunk) {
  const State state;
  Program program;
  Recorder recorder(program, state);
  const Operand targets = recorder.input({DType::i32, 10, 1});
  const Operand scale = recorder.input({DType::f32, 1, 1});
  const std::vector<Operand> tiles{recorder.input({DType::f32, 4, 30}), recorder.input({DType::f32, 4, 20})};
  const CrossEntropy out = cross_entropy(recorder, targets, {6, 4}, scale, tiles, DType::bf16);
  ASSERT_EQ(out.dlogits.size(), 2U);
  EXPECT_EQ(program.type_of(out.loss), (ValueType{DType::f32, 4, 1}));
  EXPECT_EQ(program.type_of(out.dlogits[1]), (ValueType{DType::bf16, 4, 20}));
  const Operand loss = cross_entropy_loss(recorder, targets, {0, 4}, scale, tiles);
  const std::vector<Operand> losses{loss, out.loss};
  const Operand sum = loss_sum(recorder, losses);
  EXPECT_EQ(program.value(sum.first).kind, ValueKind::output);
}

TEST(LossSum, AddsInDoubleInTokenOrder) {
  Seeded seeded;
  OpCase op{&loss_sum_spec, {}, {}, make_loss_sum_cpu};
  double expected = 0;
  for (const std::int64_t rows : {1, 100, 37}) {
    op.reads.push_back(random_matrix(DType::f32, rows, 1, seeded.rng, 3));
    for (const double loss : op.reads.back().numbers) expected += loss;
  }
  EXPECT_EQ(run(op)[0].numbers[0], expected);
}

}  // namespace
}  // namespace spillway::ops_test
