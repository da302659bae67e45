#include "ops/embedding/cpu.h"
#include "ops/embedding/embedding.h"
#include "ops/embedding/kernel.h"
#include "ops/embedding/reference.h"
#include "ops_harness.h"

namespace spillway::ops_test {
namespace {

// Numbers of bf16 sums are compared after rounding the exact f32 sum once.
std::vector<double> rounded_to(DType dtype, const std::vector<float>& values) {
  std::vector<double> out;
  for (const float value : values) out.push_back(rounded(dtype, value));
  return out;
}

std::vector<std::int32_t> random_ids(std::size_t count, std::int32_t vocabulary, Rng& rng) {
  std::uniform_int_distribution<std::int32_t> any(-1, vocabulary - 1);
  std::vector<std::int32_t> ids(count);
  for (std::int32_t& id : ids) id = any(rng);
  return ids;
}

TEST(EmbedRows, TakesRowsOfTheTileAndKeepsOthers) {
  Seeded seeded;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t cols : {1, 5, 48}) {
      const std::vector<std::int32_t> ids = random_ids(131, 30, seeded.rng);
      const Matrix tile = random_matrix(dtype, 11, cols, seeded.rng);
      for (const Matrix& previous : {absent(), random_matrix(dtype, 131, cols, seeded.rng)}) {
        const OpCase op{
            &embed_rows_spec, {{"row_begin", std::int64_t{10}}}, {column(ids), tile, previous}, make_embed_rows_cpu};
        const std::vector<float> expected = reference::embed_rows(ids, floats(tile), floats(previous), 10, 11, cols);
        EXPECT_EQ(floats(run(op)[0]), expected);
        expect_bits_do_not_depend_on_schedule(op);
      }
    }
  }
}

TEST(EmbedRows, TilesTogetherAreTheWholeTable) {
  Seeded seeded;
  const Matrix table = random_matrix(DType::f32, 25, 7, seeded.rng);
  const std::vector<std::int32_t> ids{24, 0, 9, 10, 10, 19, 20, 3};
  Matrix x = absent();
  for (std::int64_t begin = 0; begin < 25; begin += 10) {
    const std::int64_t end = std::min<std::int64_t>(25, begin + 10);
    const Matrix tile =
        matrix({DType::f32, end - begin, 7}, {table.numbers.begin() + begin * 7, table.numbers.begin() + end * 7});
    x = run({&embed_rows_spec, {{"row_begin", begin}}, {column(ids), tile, x}, make_embed_rows_cpu})[0];
  }
  EXPECT_EQ(floats(x), reference::embed_rows(ids, floats(table), {}, 0, 25, 7));
}

TEST(EmbedRows, AnIdInNoTileIsZero) {
  const Matrix tile = matrix({DType::f32, 2, 3}, {1, 2, 3, 4, 5, 6});
  const Matrix x = run({&embed_rows_spec,
                        {{"row_begin", std::int64_t{4}}},
                        {column({3, 6, -1}), tile, absent()},
                        make_embed_rows_cpu})[0];
  EXPECT_EQ(x.numbers, std::vector<double>(9, 0.0));
}

OpCase grad_case(const std::vector<std::int32_t>& ids, const Matrix& dx, const Matrix& accumulator,
                 std::int64_t row_begin, std::int64_t rows) {
  return {&embed_grad_spec,
          {{"row_begin", row_begin}, {"rows", rows}},
          {column(ids), dx, accumulator},
          make_embed_grad_cpu};
}

// Many repeats, so that the order of the sums shows in the bits.
TEST(EmbedGrad, IsTheReferenceToTheBit) {
  Seeded seeded;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t cols : {1, 37, 128, 300}) {
      const std::vector<std::int32_t> ids = random_ids(200, 12, seeded.rng);
      const Matrix dx = random_matrix(dtype, 200, cols, seeded.rng);
      for (const Matrix& accumulator : {absent(), random_matrix(DType::f32, 7, cols, seeded.rng)}) {
        std::vector<float> start = floats(accumulator);
        start.resize(static_cast<std::size_t>(7 * cols), 0.0F);
        const OpCase op = grad_case(ids, dx, accumulator, 3, 7);
        EXPECT_EQ(floats(run(op)[0]), reference::embed_grad(ids, floats(dx), start, 3, 7, cols));
        expect_bits_do_not_depend_on_schedule(op);
      }
    }
  }
}

TEST(EmbedGrad, MicroBatchesAddUpAsOneBatch) {
  Seeded seeded;
  const std::vector<std::int32_t> ids = random_ids(60, 9, seeded.rng);
  const Matrix dx = random_matrix(DType::f32, 60, 20, seeded.rng);
  Matrix accumulator = absent();
  for (std::int64_t begin = 0; begin < 60; begin += 20) {
    const Matrix part =
        matrix({DType::f32, 20, 20}, {dx.numbers.begin() + begin * 20, dx.numbers.begin() + (begin + 20) * 20});
    accumulator = run(grad_case({ids.begin() + begin, ids.begin() + begin + 20}, part, accumulator, 0, 9))[0];
  }
  EXPECT_EQ(run(grad_case(ids, dx, absent(), 0, 9))[0].numbers, accumulator.numbers);
}

TEST(EmbedGrad, IsTheGradientOfEmbedRows) {
  Seeded seeded;
  const std::vector<std::int32_t> ids = random_ids(10, 6, seeded.rng);
  const Matrix table = random_matrix(DType::f32, 6, 3, seeded.rng);
  const Matrix dx = random_matrix(DType::f32, 10, 3, seeded.rng);
  const auto forward = [&](const std::vector<double>& weight) {
    std::vector<double> x(30, 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (ids[i / 3] >= 0) x[i] = weight[static_cast<std::size_t>(ids[i / 3]) * 3 + i % 3];
    }
    return x;
  };
  expect_close(run(grad_case(ids, dx, absent(), 0, 6))[0], finite_difference(forward, table.numbers, dx.numbers));
}

TEST(AddPositions, IsTheReferenceToTheBit) {
  Seeded seeded;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t cols : {1, 16, 53}) {
      std::vector<std::int32_t> positions = random_ids(150, 20, seeded.rng);  // some beyond the 15 rows
      const Matrix x = random_matrix(dtype, 150, cols, seeded.rng);
      const Matrix weight = random_matrix(dtype, 15, cols, seeded.rng);
      const OpCase op{&add_positions_spec, {}, {x, weight, column(positions)}, make_add_positions_cpu};
      EXPECT_EQ(run(op)[0].numbers,
                rounded_to(dtype, reference::add_positions(floats(x), floats(weight), positions, cols)));
      expect_bits_do_not_depend_on_schedule(op);
    }
  }
}

// The op that would join two gradients of one value; none is needed here.
const OpSpec no_sum_spec{"no_sum", nullptr, nullptr, nullptr, {}};

TEST(Embedding, BackwardGathersPositionsAndEachTile) {
  State state;
  const TensorId wpe = state.add({.name = "wpe", .rows = 8, .cols = 4, .trainable = true}, 1 << 20);
  const TensorId low = state.add({.name = "low", .rows = 5, .cols = 4, .trainable = true}, 1 << 20);
  const TensorId high = state.add({.name = "high", .rows = 3, .cols = 4, .trainable = true}, 1 << 20);
  Program program;
  Recorder recorder(program, state);
  recorder.label({.phase = Phase::forward, .layer = -1, .micro_batch = 0, .part = "embedding"});
  const Operand ids = recorder.input({DType::i32, 6, 1});
  const Operand positions = recorder.input({DType::i32, 6, 1});
  const Operand first = embed_rows(recorder, ids, recorder.state_tensor(low), 0);
  const Operand second = embed_rows(recorder, ids, recorder.state_tensor(high), 5, first);
  const Operand y = add_positions(recorder, second, recorder.state_tensor(wpe), positions);
  const Operand dy = recorder.input({DType::f32, 6, 4});
  const std::size_t forward_ops = program.ops.size();
  const Recorder::Seed seed{y, dy};
  recorder.backward({&seed, 1}, no_sum_spec, [](const Label&) {});

  ASSERT_EQ(program.ops.size(), forward_ops + 3);
  struct Want {
    TensorId tensor;
    Operand ids;
    std::int64_t row_begin;
  };
  std::size_t at = forward_ops;
  for (const Want& want : {Want{wpe, positions, 0}, Want{high, ids, 5}, Want{low, ids, 0}}) {
    const Op& op = program.ops[at++];
    EXPECT_EQ(op.spec, &embed_grad_spec);
    EXPECT_EQ(op.reads[0], want.ids);
    EXPECT_EQ(op.reads[1], dy);
    EXPECT_EQ(op.attrs.integer("row_begin"), want.row_begin);
    EXPECT_EQ(op.attrs.integer("rows"), state.tensor(want.tensor).rows);
    EXPECT_EQ(recorder.accumulator(recorder.state_tensor(want.tensor)), op.writes[0]);
  }
}

TEST(Embedding, TargetsAgree) {
  Seeded seeded;
  const auto check = [&]<typename T>(const Matrix& x, const Matrix& weight) {
    const Buffer xs(x.type.bytes());
    const Buffer weights(weight.type.bytes());
    put(xs.data(), x);
    put(weights.data(), weight);
    const auto all = [&](auto accumulate, auto add) {
      const Buffer sums(77 * 4);
      const Buffer rows(77 * static_cast<std::int64_t>(sizeof(T)));
      std::memset(sums.data(), 0, 77 * 4);
      accumulate(reinterpret_cast<float*>(sums.data()), reinterpret_cast<const T*>(xs.data()), 77);
      accumulate(reinterpret_cast<float*>(sums.data()), reinterpret_cast<const T*>(weights.data()), 77);
      add(reinterpret_cast<T*>(rows.data()), reinterpret_cast<const T*>(xs.data()),
          reinterpret_cast<const T*>(weights.data()), 77);
      return std::pair{sums.contents(), rows.contents()};
    };
    const auto expected = all(&baseline::accumulate_embedding<T>, &baseline::add_position<T>);
    if (best_isa() >= Isa::avx2) {
      EXPECT_TRUE(all(&avx2::accumulate_embedding<T>, &avx2::add_position<T>) == expected);
    }
    if (best_isa() >= Isa::avx512) {
      EXPECT_TRUE(all(&avx512::accumulate_embedding<T>, &avx512::add_position<T>) == expected);
    }
    if (best_isa() >= Isa::avx512_bf16) {
      EXPECT_TRUE(all(&avx512_bf16::accumulate_embedding<T>, &avx512_bf16::add_position<T>) == expected);
    }
  };
  check.template operator()<float>(random_matrix(DType::f32, 1, 77, seeded.rng),
                                   random_matrix(DType::f32, 1, 77, seeded.rng));
  check.template operator()<bf16_t>(random_matrix(DType::bf16, 1, 77, seeded.rng),
                                    random_matrix(DType::bf16, 1, 77, seeded.rng));
}

}  // namespace
}  // namespace spillway::ops_test
