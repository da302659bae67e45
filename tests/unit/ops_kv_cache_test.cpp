#include "ops/kv_cache/cpu.h"
#include "ops/kv_cache/kernel.h"
#include "ops/kv_cache/kv_cache.h"
#include "ops/kv_cache/reference.h"
#include "ops_harness.h"

namespace spillway::ops_test {
namespace {

std::vector<float> part(const Matrix& from, std::int64_t row, std::int64_t begin, std::int64_t count) {
  const auto at = from.numbers.begin() + row * from.type.cols + begin;
  return {at, at + count};
}

TEST(KvAppend, TouchesOnlyRowsAtPositions) {
  Seeded seeded;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Matrix cache = random_matrix(dtype, 600, 6, seeded.rng);
    const Matrix fresh = random_matrix(dtype, 5, 6, seeded.rng);
    const std::vector<std::int32_t> positions{599, -1, 3, 256, 3};
    const OpCase op{&kv_append_spec, {}, {cache, fresh, column(positions)}, make_kv_append_cpu};
    Matrix expected = cache;
    for (std::size_t row = 0; row < positions.size(); ++row) {
      for (std::size_t col = 0; col < 6 && positions[row] >= 0; ++col) {
        expected.numbers[static_cast<std::size_t>(positions[row]) * 6 + col] = fresh.numbers[row * 6 + col];
      }
    }
    EXPECT_EQ(run(op)[0].numbers, expected.numbers);
    expect_bits_do_not_depend_on_schedule(op);
  }
}

struct Shape {
  std::int64_t rows;
  std::int64_t cache_rows;
  HeadShape heads;
};

OpCase attention(const Shape& shape, DType dtype, const std::vector<std::int32_t>& positions, Rng& rng,
                 double deviation = 1) {
  const HeadShape& heads = shape.heads;
  const std::int64_t width = heads.kv_heads * heads.head_dim;
  return {&kv_attention_spec,
          {{"heads", heads.heads}, {"kv_heads", heads.kv_heads}, {"head_dim", heads.head_dim}},
          {random_matrix(dtype, shape.rows, heads.heads * heads.head_dim, rng, deviation),
           random_matrix(dtype, shape.cache_rows, width, rng, deviation),
           random_matrix(dtype, shape.cache_rows, width, rng), column(positions)},
          make_kv_attention_cpu};
}

std::vector<double> expected_attention(const OpCase& op, const HeadShape& shape) {
  std::vector<double> out;
  for (std::int64_t row = 0; row < op.reads[0].type.rows; ++row) {
    const auto position = static_cast<std::int64_t>(op.reads[3].numbers[static_cast<std::size_t>(row)]);
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t kv_begin = head / (shape.heads / shape.kv_heads) * shape.head_dim;
      std::vector<std::vector<float>> keys;
      std::vector<std::vector<float>> values;
      for (std::int64_t i = 0; i <= position; ++i) {
        keys.push_back(part(op.reads[1], i, kv_begin, shape.head_dim));
        values.push_back(part(op.reads[2], i, kv_begin, shape.head_dim));
      }
      std::vector<double> of_head(static_cast<std::size_t>(shape.head_dim), 0.0);
      if (position >= 0) {
        of_head = reference::attend(part(op.reads[0], row, head * shape.head_dim, shape.head_dim), keys, values);
      }
      out.insert(out.end(), of_head.begin(), of_head.end());
    }
  }
  return out;
}

TEST(KvAttention, FollowsTheReference) {
  Seeded seeded;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape& shape :
         {Shape{1, 1, {1, 1, 1}}, Shape{3, 40, {4, 2, 16}}, Shape{4, 65, {6, 2, 20}}, Shape{2, 300, {3, 3, 64}}}) {
      std::vector<std::int32_t> positions;
      std::uniform_int_distribution<std::int32_t> any(-1, static_cast<std::int32_t>(shape.cache_rows) - 1);
      for (std::int64_t row = 0; row < shape.rows; ++row) positions.push_back(any(seeded.rng));
      positions[0] = static_cast<std::int32_t>(shape.cache_rows) - 1;
      const OpCase op = attention(shape, dtype, positions, seeded.rng);
      const Tolerance tolerance = dtype == DType::bf16 ? Tolerance{1.0 / 256, 1e-5} : Tolerance{1e-5, 1e-5};
      expect_close(run(op)[0], expected_attention(op, shape.heads), tolerance);
      expect_bits_do_not_depend_on_schedule(op);
    }
  }
}

TEST(KvAttention, RowsAfterThePositionAreNotSeen) {
  Seeded seeded;
  const Shape shape{2, 50, {2, 1, 24}};
  OpCase op = attention(shape, DType::f32, {16, -1}, seeded.rng);
  const std::vector<double> before = run(op)[0].numbers;
  for (std::size_t i = 17 * 24; i < 50 * 24; ++i) {
    op.reads[1].numbers[i] = std::nan("");
    op.reads[2].numbers[i] = std::nan("");
  }
  EXPECT_EQ(run(op)[0].numbers, before);
  EXPECT_EQ(std::vector<double>(before.begin() + 48, before.end()), std::vector<double>(48, 0.0));
}

TEST(KvAttention, LargeScoresStayFinite) {
  Seeded seeded;
  const Shape shape{2, 33, {2, 2, 32}};
  const OpCase op = attention(shape, DType::f32, {32, 5}, seeded.rng, 100);
  expect_close(run(op)[0], expected_attention(op, shape.heads), Tolerance{2e-2, 2e-2});
  const Matrix out = run(op)[0];
  for (const double number : out.numbers) EXPECT_TRUE(std::isfinite(number));
}

TEST(KvAttention, TargetsAgree) {
  if (best_isa() < Isa::avx2) GTEST_SKIP() << "no target with fused multiply-adds";
  Seeded seeded;
  const auto check = [&]<typename T>(DType dtype) {
    const OpCase op = attention({1, 37, {1, 1, 40}}, dtype, {36}, seeded.rng);
    std::vector<Buffer> reads;
    for (const Matrix& read : op.reads) {
      reads.emplace_back(read.type.bytes());
      put(reads.back().data(), read);
    }
    const auto result = [&](auto attend) {
      const Buffer out(40 * static_cast<std::int64_t>(sizeof(T)));
      const Buffer scratch((48 + 2 * 48) * 4);
      auto* floats = reinterpret_cast<float*>(scratch.data());
      attend(reinterpret_cast<T*>(out.data()),
             CachedHead<T>{reinterpret_cast<const T*>(reads[0].data()), reinterpret_cast<const T*>(reads[1].data()),
                           reinterpret_cast<const T*>(reads[2].data()), 40, 37, 40, 0.2F, floats, floats + 48,
                           floats + 96});
      return out.contents();
    };
    const std::vector<std::byte> expected = result(&baseline::attend_cached<T>);
    const std::vector<std::byte> fused = result(&avx2::attend_cached<T>);
    for (std::size_t i = 0; i < 40; ++i) {
      const auto number = [&](const std::vector<std::byte>& bytes) -> float {
        T value;
        std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
        if constexpr (std::is_same_v<T, bf16_t>) return widen(value);
        return value;
      };
      ASSERT_NEAR(number(fused), number(expected), sizeof(T) == 4 ? 1e-5 : 1e-2) << i;
    }
    if (best_isa() < Isa::avx512) return;
    EXPECT_EQ(result(&avx512::attend_cached<T>), fused);
    if (best_isa() < Isa::avx512_bf16) return;
    EXPECT_EQ(result(&avx512_bf16::attend_cached<T>), fused);
  };
  check.template operator()<float>(DType::f32);
  check.template operator()<bf16_t>(DType::bf16);
}

TEST(KvCache, RecordsNewVersionsOfTheCache) {
  State state;
  const TensorId keys = state.add({.name = "keys", .rows = 64, .cols = 32, .committed = false}, 1 << 20);
  Program program;
  Recorder recorder(program, state);
  const Operand old = recorder.state_tensor(keys);
  const Operand fresh = recorder.input({DType::f32, 2, 32});
  const Operand positions = recorder.input({DType::i32, 2, 1});
  const Operand q = recorder.input({DType::f32, 2, 64});
  kv_append(recorder, old, fresh, positions, recorder.new_version(state.first_piece(keys)));
  const Operand cache = recorder.state_tensor(keys);
  EXPECT_EQ(program.value(cache.first).kind, ValueKind::state_out);
  const Operand o = kv_attention(recorder, q, cache, cache, positions, {2, 1, 32});
  EXPECT_EQ(program.type_of(o), (ValueType{DType::f32, 2, 64}));
}

}  // namespace
}  // namespace spillway::ops_test
