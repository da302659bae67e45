#include <cmath>
#include <set>

#include "ops/adamw/adamw.h"
#include "ops/adamw/cpu.h"
#include "ops/adamw/kernel.h"
#include "ops/adamw/packed.h"
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
    const auto number = [&rng] { return static_cast<float>(random_number(rng)); };
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      master.push_back(0.02F * number());
      m.push_back(1e-3F * number());
      v.push_back(std::pow(1e-3F * number(), 2.0F));
    }
    for (std::int64_t i = 0; i < total_rows * cols; ++i) {
      grad.push_back(static_cast<float>(rounded(dtype, 1e-2F * number())));
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
    const Floats by{scalars.b1,   scalars.c1, scalars.b2,  scalars.c2,   scalars.keep,
                    scalars.step, scalars.r,  scalars.eps, scalars.noise};
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
std::vector<std::byte> run_target(ChunkFunction<T> target, const Example& example, std::int64_t ahead = 0) {
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
  target(AdamwStreams<T>{weight, m, v, low, grad, example.rows * example.cols, ahead}, example.scalars, 0.8F);
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
  for (const std::int64_t ahead : {0, 128, 256}) {
    EXPECT_TRUE(run_target<T>(&baseline::adamw_chunk<T>, example, ahead) == expected);
    if (best_isa() >= Isa::avx2) {
      EXPECT_TRUE(run_target<T>(&avx2::adamw_chunk<T>, example, ahead) == expected);
    }
    if (best_isa() >= Isa::avx512) {
      EXPECT_TRUE(run_target<T>(&avx512::adamw_chunk<T>, example, ahead) == expected);
    }
    if (best_isa() >= Isa::avx512_bf16) {
      EXPECT_TRUE(run_target<T>(&avx512_bf16::adamw_chunk<T>, example, ahead) == expected);
    }
  }
}

TEST(Adamw, TargetsAgree) {
  Seeded seeded;
  expect_targets_agree<float>(seeded.rng);
  expect_targets_agree<bf16_t>(seeded.rng);
}

// --- Moments in 8 bits ---

// Codes and exponents that an earlier update may have left.
std::vector<std::uint8_t> random_codes(std::int64_t cols, Rng& rng) {
  std::vector<std::uint8_t> row(static_cast<std::size_t>(packed_row_bytes(cols)));
  for (std::int64_t i = 0; i < cols; ++i) row[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(rng());
  for (std::int64_t i = cols; i < cols + divide_up(cols, packed_block); ++i) {
    row[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(100 + rng() % 20);
  }
  return row;
}

template <typename T>
using PackedFunction = void (*)(const PackedAdamwStreams<T>&, const AdamwScalars&, float);

struct PackedExample {
  PackedExample(std::int64_t row_count, std::int64_t col_count, DType type, Rng& rng)
      : values{.rows = row_count, .cols = col_count, .dtype = type} {
    values.fill(rng);
    for (std::int64_t row = 0; row < row_count; ++row) {
      m.push_back(random_codes(col_count, rng));
      v.push_back(random_codes(col_count, rng));
    }
  }

  OpCase op() const {
    OpCase op = values.op();
    op.reads[1] = codes(m);
    op.reads[2] = codes(v);
    return op;
  }
  Matrix codes(const std::vector<std::vector<std::uint8_t>>& rows) const {
    std::vector<double> all;
    for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
    return matrix(packed_moment_type(values.rows, values.cols), all);
  }
  // What the op should write, row by row.
  void update() {
    const auto cols = static_cast<std::size_t>(values.cols);
    for (std::size_t row = 0; row < m.size(); ++row) {
      const auto part = [&](const Floats& all) {
        const auto at = all.begin() + static_cast<std::ptrdiff_t>(row * cols);
        return Floats(at, at + values.cols);
      };
      Floats p = part(values.master);
      reference::packed_adamw(p, m[row], v[row], part(values.grad), values.clip.value_or(1.0F), values.scalars);
      std::copy(p.begin(), p.end(), values.master.begin() + static_cast<std::ptrdiff_t>(row * cols));
    }
  }

  Example values;
  std::vector<std::vector<std::uint8_t>> m;
  std::vector<std::vector<std::uint8_t>> v;
};

TEST(PackedAdamw, IsTheReferenceToTheBit) {
  Seeded seeded;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [rows, cols] : {std::pair{1, 64}, std::pair{3, 130}, std::pair{700, 96}, std::pair{2, 5}}) {
      PackedExample example(rows, cols, dtype, seeded.rng);
      example.values.clip = 0.9F;
      expect_bits_do_not_depend_on_schedule(example.op());
      const std::vector<Matrix> writes = run(example.op());
      example.update();
      EXPECT_EQ(writes[1].numbers, example.codes(example.m).numbers) << rows << " x " << cols;
      EXPECT_EQ(writes[2].numbers, example.codes(example.v).numbers) << rows << " x " << cols;
      EXPECT_EQ(masters(writes), example.values.master) << rows << " x " << cols;
    }
  }
}

template <typename T>
std::vector<std::byte> run_packed_target(PackedFunction<T> target, const PackedExample& example) {
  std::vector<Buffer> streams;
  for (const Matrix& read : example.op().reads) {
    streams.emplace_back(read.type.bytes());
    put(streams.back().data(), read);
  }
  target(
      PackedAdamwStreams<T>{reinterpret_cast<T*>(streams[0].data()), reinterpret_cast<std::uint8_t*>(streams[1].data()),
                            reinterpret_cast<std::uint8_t*>(streams[2].data()),
                            reinterpret_cast<std::uint16_t*>(streams[3].data()),
                            reinterpret_cast<const T*>(streams[4].data()), example.values.rows, example.values.cols},
      example.values.scalars, 0.8F);
  std::vector<std::byte> all;
  for (const Buffer& stream : streams) {
    const std::vector<std::byte> bytes = stream.contents();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

template <typename T>
void expect_packed_targets_agree(Rng& rng) {
  const PackedExample example(4, 203, sizeof(T) == 2 ? DType::bf16 : DType::f32, rng);
  const std::vector<std::byte> expected = run_packed_target<T>(&baseline::adamw_chunk<T>, example);
  if (best_isa() >= Isa::avx2) {
    EXPECT_TRUE(run_packed_target<T>(&avx2::adamw_chunk<T>, example) == expected);
  }
  if (best_isa() >= Isa::avx512) {
    EXPECT_TRUE(run_packed_target<T>(&avx512::adamw_chunk<T>, example) == expected);
  }
  if (best_isa() >= Isa::avx512_bf16) {
    EXPECT_TRUE(run_packed_target<T>(&avx512_bf16::adamw_chunk<T>, example) == expected);
  }
}

TEST(PackedAdamw, TargetsAgree) {
  Seeded seeded;
  expect_packed_targets_agree<float>(seeded.rng);
  expect_packed_targets_agree<bf16_t>(seeded.rng);
}

// What a code stands for, on average over the noise, is the value, however small beside the block's largest.
TEST(PackedAdamw, RoundsToTheValueInTheMean) {
  Seeded seeded;
  constexpr int draws = 200000;
  const std::uint32_t base = packed_base(120, 16);
  for (const float value : {1.3e-2F, 7.77e-4F, 4.0e-6F, 1.0e-7F}) {
    double sum = 0;
    for (int i = 0; i < draws; ++i) {
      const auto noise = static_cast<std::uint32_t>(seeded.rng());
      sum += static_cast<double>(unpacked(packed_code(std::bit_cast<std::uint32_t>(value), base, noise, false), base));
    }
    const double smallest = static_cast<double>(unpacked(1, base));
    EXPECT_NEAR(sum / draws, value, 0.001 * value + 5 * smallest / std::sqrt(draws)) << value;
  }
}

// To nearest it would stay: 0.999 of a code rounds back to it.
TEST(PackedAdamw, TheSecondMomentDecaysAsItShould) {
  constexpr std::int64_t cols = 6400;  // so many that the mean hardly depends on the seed
  Seeded seeded;
  PackedExample example(1, cols, DType::f32, seeded.rng);
  std::fill(example.values.grad.begin(), example.values.grad.end(), 0.0F);
  const auto sum = [&] {
    double total = 0;
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto exponent = example.v[0][static_cast<std::size_t>(cols + c / packed_block)];
      total += static_cast<double>(unpacked(example.v[0][static_cast<std::size_t>(c)], packed_base(exponent, 32)));
    }
    return total;
  };
  const AdamwSettings settings{.beta1 = 0.9, .beta2 = 0.999};
  AdamwProducts products;
  const double before = sum();
  for (int t = 0; t < 1000; ++t) {
    products.advance(settings);
    example.values.scalars = adamw_scalars(settings, products, 1e-4);
    example.update();
  }
  EXPECT_NEAR(sum() / before, std::pow(0.999, 1000), 0.1);
}

// A zero divisor would make a step of m / epsilon.
TEST(PackedAdamw, ASecondMomentIsNeverRoundedToZero) {
  Seeded seeded;
  const std::uint32_t base = packed_base(120, 32);
  for (int i = 0; i < 1000; ++i) {
    const auto noise = static_cast<std::uint32_t>(seeded.rng());
    EXPECT_GT(packed_code(std::bit_cast<std::uint32_t>(1e-30F), base, noise, true), 0U);
  }
  EXPECT_EQ(packed_code(0, base, 0xffffffffU, true), 0U);
}

TEST(Adamw, TheNoiseDiffersFromStepToStep) {
  AdamwProducts products;
  std::set<float> seen;
  for (int t = 0; t < 5000; ++t) {
    products.advance({});
    seen.insert(adamw_scalars({}, products, 1e-3).noise);
  }
  EXPECT_GT(seen.size(), 4990U);
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
