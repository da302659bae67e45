#include <cmath>

#include "ops/adamw/adamw.h"
#include "ops/adamw/cpu.h"
#include "ops/adamw/kernel.h"
#include "ops/adamw/reference.h"
#include "ops_harness.h"

namespace spillway::ops_test {
namespace {

AdamwScalars example_scalars() {
  AdamwProducts products;
  const AdamwSettings settings{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  for (int t = 0; t < 3; ++t) products.advance(settings);
  return adamw_scalars(settings, products, 3e-4);
}

using Floats = std::vector<float>;

std::vector<double> numbers(const Floats& floats) { return {floats.begin(), floats.end()}; }

// Rows [row_begin, row_begin + rows) of a tensor of `total_rows` are updated.
struct Example {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_begin = 0;
  std::int64_t total_rows = rows;
  DType dtype = DType::f32;
  bool decay = true;
  std::optional<float> clip = std::nullopt;
  AdamwScalars scalars = example_scalars();
  Floats master = {};
  Floats m = {};
  Floats v = {};
  Floats grad = {};  // of the whole tensor, values of dtype

  void fill(Rng& rng) {
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      master.push_back(0.02F * normal(rng));
      m.push_back(1e-3F * normal(rng));
      v.push_back(std::pow(1e-3F * normal(rng), 2.0F));
    }
    for (std::int64_t i = 0; i < total_rows * cols; ++i) {
      grad.push_back(static_cast<float>(rounded(dtype, 1e-2F * normal(rng))));
    }
  }

  OpCase op() const {
    Floats hi;
    std::vector<double> lo;
    for (const float value : master) {
      hi.push_back(widen(split_master(value).hi));
      lo.push_back(split_master(value).lo);
    }
    const bool split = dtype == DType::bf16;
    const Floats by{scalars.b1, scalars.c1, scalars.b2, scalars.c2, scalars.keep, scalars.step, scalars.r, scalars.eps};
    return {&adamw_spec,
            {{"row_begin", row_begin}, {"decay", std::int64_t{decay}}},
            {matrix({dtype, rows, cols}, numbers(split ? hi : master)), matrix({DType::f32, rows, cols}, numbers(m)),
             matrix({DType::f32, rows, cols}, numbers(v)), split ? matrix({DType::u16, rows, cols}, lo) : absent(),
             matrix({dtype, total_rows, cols}, numbers(grad)), clip ? matrix({DType::f32, 1, 1}, {*clip}) : absent(),
             matrix(adamw_scalars_type, numbers(by))},
            make_adamw_cpu};
  }

  reference::AdamwElement expected(std::size_t i) const {
    AdamwScalars by = scalars;
    if (!decay) by.keep = 1;
    return reference::adamw({master[i], m[i], v[i]}, grad[static_cast<std::size_t>(row_begin * cols) + i],
                            clip.value_or(1.0F), by);
  }
};

Floats floats(const Matrix& matrix) { return {matrix.numbers.begin(), matrix.numbers.end()}; }

// The f32 masters behind the writes.
Floats masters(const std::vector<Matrix>& writes) {
  if (writes.size() == 3) return floats(writes[0]);
  Floats out;
  for (std::size_t i = 0; i < writes[0].numbers.size(); ++i) {
    out.push_back(join_master(
        {round_bf16(static_cast<float>(writes[0].numbers[i])), static_cast<std::uint16_t>(writes[3].numbers[i])}));
  }
  return out;
}

bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

void expect_reference(const Example& example) {
  expect_bits_do_not_depend_on_schedule(example.op());
  const std::vector<Matrix> writes = run(example.op());
  const Floats p = masters(writes);
  const Floats m = floats(writes[1]);
  const Floats v = floats(writes[2]);
  int wrong = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const reference::AdamwElement want = example.expected(i);
    if (!same_bits(p[i], want.p) || !same_bits(m[i], want.m) || !same_bits(v[i], want.v)) ++wrong;
  }
  EXPECT_EQ(wrong, 0) << "of " << p.size() << ", " << name_of(example.dtype);
}

TEST(Adamw, IsTheReferenceToTheBit) {
  Seeded seeded;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (Example example : {Example{1, 1}, Example{3, 5, 2, 7}, Example{16, 16}, Example{33, 31, 1, 40}}) {
      example.dtype = dtype;
      example.fill(seeded.rng);
      expect_reference(example);
      example.clip = 0.37F;
      example.decay = false;
      expect_reference(example);
    }
  }
}

TEST(Adamw, TasksJoinWithoutGapOrOverlap) {
  Seeded seeded;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Example example{65536 * 2 + 5, 1};
    example.dtype = dtype;
    example.fill(seeded.rng);
    expect_reference(example);
  }
}

TEST(Adamw, AllStreamsInPlaceEqualApart) {
  Seeded seeded;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Example example{70, 1000};
    example.dtype = dtype;
    example.fill(seeded.rng);
    std::vector<Share> shares = adamw_spec.shares;
    if (dtype == DType::f32) shares.pop_back();
    EXPECT_TRUE(run_to_bytes(example.op(), {3, 1, shares}) == run_to_bytes(example.op()));
  }
}

TEST(Adamw, SetsDenormalMomentsToZero) {
  Seeded seeded;
  const float smallest_normal = 0x1p-126F;
  Example example{1, 20};
  example.fill(seeded.rng);
  for (std::size_t i = 0; i < 20; ++i) {
    example.grad[i] = 0;
    example.m[i] = i % 2 == 0 ? 0x1p-130F : -0x1p-130F;
    example.v[i] = 0x1p-130F;
  }
  example.m[4] = -2 * smallest_normal;
  example.v[4] = 2 * smallest_normal;
  expect_reference(example);
  const std::vector<Matrix> writes = run(example.op());
  for (std::size_t i = 0; i < 20; ++i) {
    const float m = floats(writes[1])[i];
    const float v = floats(writes[2])[i];
    if (i == 4) {
      EXPECT_LE(m, -smallest_normal);
      EXPECT_GE(v, smallest_normal);
    } else {
      EXPECT_TRUE(same_bits(m, 0.0F) && same_bits(v, 0.0F)) << i << ": " << m << " and " << v;
    }
  }
}

TEST(Adamw, NotANumberStays) {
  Seeded seeded;
  Example example{1, 17};
  example.fill(seeded.rng);
  example.grad[3] = std::nanf("");
  const std::vector<Matrix> writes = run(example.op());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(writes[i].numbers[3]));
  EXPECT_TRUE(std::isfinite(writes[0].numbers[2]));
}

// With a step of 0 nothing moves, so every master must come back as it was: ties and exponents of all sizes.
TEST(Adamw, SplitMastersComeBackExactly) {
  Seeded seeded;
  Example example{60000, 1};
  example.dtype = DType::bf16;
  example.fill(seeded.rng);
  example.scalars.keep = 1;
  example.scalars.step = 0;
  for (std::size_t i = 0; i < example.master.size(); ++i) {
    auto u = static_cast<std::uint32_t>(seeded.rng());
    if (i % 3 == 0) u = (u & 0xffff0000U) | 0x8000U;  // halfway
    if (i % 3 == 1) u = (u & 0xffff0000U) | 0x7fffU;
    const std::uint32_t exponent = u & 0x7f800000U;
    if (exponent != 0 && exponent < 0x7f000000U) example.master[i] = std::bit_cast<float>(u);
  }
  const Floats after = masters(run(example.op()));
  for (std::size_t i = 0; i < after.size(); ++i) {
    ASSERT_TRUE(same_bits(after[i], example.master[i])) << i << ": " << example.master[i] << ", " << after[i];
  }
}

TEST(Adamw, SplitAndWholeMastersAgree) {
  Seeded seeded;
  Example example{9, 29};
  example.dtype = DType::bf16;
  example.fill(seeded.rng);
  const Floats split = masters(run(example.op()));
  example.dtype = DType::f32;
  EXPECT_EQ(masters(run(example.op())), split);
}

template <typename T>
using ChunkFunction = void (*)(const AdamwStreams<T>&, const AdamwScalars&, float);

template <typename T>
std::vector<std::byte> run_target(ChunkFunction<T> target, const Example& example) {
  std::vector<Buffer> streams;
  for (const Matrix& read : example.op().reads) {
    streams.emplace_back(read.type.bytes());
    put(streams.back().data(), read);
  }
  T* weight = reinterpret_cast<T*>(streams[0].data());
  auto* m = reinterpret_cast<float*>(streams[1].data());
  auto* v = reinterpret_cast<float*>(streams[2].data());
  auto* low = reinterpret_cast<std::uint16_t*>(streams[3].data());
  const T* grad = reinterpret_cast<const T*>(streams[4].data());
  target({weight, m, v, low, grad, example.rows * example.cols}, example.scalars, 0.8F);
  std::vector<std::byte> all;
  for (const Buffer& stream : streams) {
    const std::vector<std::byte> bytes = stream.contents();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

template <typename T>
void expect_targets_agree(Rng& rng) {
  Example example{1, 1003};
  example.dtype = sizeof(T) == 2 ? DType::bf16 : DType::f32;
  example.fill(rng);
  const std::vector<std::byte> expected = run_target<T>(&baseline::adamw_chunk<T>, example);
  if (best_isa() >= Isa::avx2) {
    EXPECT_TRUE(run_target<T>(&avx2::adamw_chunk<T>, example) == expected);
  }
  if (best_isa() >= Isa::avx512) {
    EXPECT_TRUE(run_target<T>(&avx512::adamw_chunk<T>, example) == expected);
  }
}

TEST(Adamw, TargetsAgree) {
  Seeded seeded;
  expect_targets_agree<float>(seeded.rng);
  expect_targets_agree<bf16_t>(seeded.rng);
}

TEST(Adamw, ScalarsAreThoseOfTheStep) {
  const AdamwSettings settings{.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01};
  AdamwProducts products;
  for (int t = 1; t <= 5; ++t) {
    products.advance(settings);
    const AdamwScalars scalars = adamw_scalars(settings, products, 1e-3);
    EXPECT_NEAR(scalars.step, 1e-3 / (1 - std::pow(0.9, t)), 1e-9);
    EXPECT_NEAR(scalars.r, 1 / std::sqrt(1 - std::pow(0.999, t)), 1e-5);
    EXPECT_EQ(scalars.b1, 0.9F);
    EXPECT_EQ(scalars.c1, static_cast<float>(1 - 0.9));
    EXPECT_EQ(scalars.keep, static_cast<float>(1 - 1e-3 * 0.01));
    EXPECT_EQ(scalars.eps, 1e-8F);
  }
}

TEST(Adamw, RecordsOnePieceAsNewVersions) {
  State state;
  const auto add = [&](const char* name, DType dtype) {
    return state.first_piece(state.add({.name = name, .dtype = dtype, .rows = 1 << 16, .cols = 4}, 1 << 17));
  };
  const AdamwPieces first{add("w", DType::bf16), add("w.exp_avg", DType::f32), add("w.exp_avg_sq", DType::f32),
                          add("w.low", DType::u16)};
  const auto second = [](PieceId id) { return static_cast<PieceId>(static_cast<std::int32_t>(id) + 1); };
  const AdamwPieces pieces{second(first.weight), second(first.exp_avg), second(first.exp_avg_sq), second(first.low)};
  ASSERT_GT(state.piece(pieces.weight).row_begin, 0);
  Program program;
  Recorder recorder(program, state);
  const Operand grad = recorder.input({DType::bf16, 1 << 16, 4});
  const Operand scalars = recorder.input(adamw_scalars_type);
  adamw(recorder, pieces, grad, 3, {}, scalars, true);
  const Op& op = program.ops.back();
  EXPECT_EQ(op.attrs.integer("row_begin"), 3);
  ASSERT_EQ(op.writes.size(), 4U);
  EXPECT_EQ(program.value(op.writes[0].first).kind, ValueKind::state_out);
  EXPECT_EQ(program.value(op.writes[0].first).piece, pieces.weight);
  EXPECT_EQ(program.value(op.writes[3].first).piece, pieces.low);
  EXPECT_EQ(program.value(op.reads[3].first).kind, ValueKind::state_in);
  EXPECT_FALSE(op.reads[static_cast<std::size_t>(AdamwRead::clip)].exists());
}

}  // namespace
}  // namespace spillway::ops_test
