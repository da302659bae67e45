// The sixteen lanes: accuracy of their functions, and equal bits of every kernel on each target this processor runs.
#include "ops/add/kernel.h"
#include "ops/attention/softmax.h"
#include "ops/dispatch.h"
#include "ops/gelu/kernel.h"
#include "ops/layernorm/kernel.h"
#include "ops/reduce/kernel.h"
#include "ops/rmsnorm/kernel.h"
#include "ops/rope/kernel.h"
#include "ops/round/kernel.h"
#include "ops/simd.h"
#include "ops/swiglu/kernel.h"
#include "ops_harness.h"

SPILLWAY_DECLARE_TARGETS(AttentionKernels<float> attention_kernels_f32())
SPILLWAY_DECLARE_TARGETS(AttentionKernels<bf16_t> attention_kernels_bf16())

namespace spillway::ops_test {
namespace {

float first_lane(baseline::f32x16 value) { return value[0]; }

double ulps(float actual, double expected) {
  const auto nearest = static_cast<float>(expected);
  return std::abs(actual - expected) / (std::nextafter(std::abs(nearest), INFINITY) - std::abs(nearest));
}

TEST(Simd, ExpOfASoftmaxIsAccurateAndKeepsNaN) {
  for (float x = -87.0F; x <= 1; x += 0.0137F) {
    ASSERT_LE(ulps(first_lane(baseline::exp_below_one(baseline::splat(x))), std::exp(static_cast<double>(x))), 2.5)
        << x;
  }
  EXPECT_EQ(first_lane(baseline::exp_below_one(baseline::splat(0))), 1.0F);
  EXPECT_EQ(first_lane(baseline::exp_below_one(baseline::splat(-INFINITY))), 0.0F);
  EXPECT_EQ(first_lane(baseline::exp_below_one(baseline::splat(-88))), 0.0F);
  for (const float nan : {NAN, -NAN})
    EXPECT_TRUE(std::isnan(first_lane(baseline::exp_below_one(baseline::splat(nan)))));
}

TEST(Simd, PowersOfADifferenceAreAccurateAndKeepNaN) {
  const auto power = [](float x, float offset, float factor) {
    return first_lane(
        baseline::exp2_of_difference(baseline::splat(x), baseline::splat(offset), baseline::splat(factor)));
  };
  for (float x = -126.0F; x <= 1; x += 0.0137F) {
    ASSERT_LE(ulps(power(x, 0, 1), std::exp2(static_cast<double>(x))), 2.5) << x;
    ASSERT_EQ(power(2 * x, 0, 0.5F), power(x, 0, 1)) << x;
  }
  EXPECT_EQ(power(3e30F, 3e30F, 7), 1.0F);
  EXPECT_EQ(power(3e30F, -3e30F, 7), 2.0F);
  EXPECT_EQ(power(-1, 125, 1), std::ldexp(1.0F, -126));
  EXPECT_EQ(power(-1, 125.5F, 1), 0.0F);
  EXPECT_EQ(power(0, INFINITY, 1), 0.0F);
  EXPECT_EQ(power(-INFINITY, 0, 1), 0.0F);
  for (const float nan : {NAN, -NAN}) EXPECT_TRUE(std::isnan(power(nan, 0, 1)) && std::isnan(power(0, nan, 1)));
}

TEST(Simd, SigmoidIsAccurate) {
  for (double x = -87; x < 90; x += 0.0037) {
    const auto at = static_cast<float>(x);
    ASSERT_LE(ulps(first_lane(baseline::sigmoid(baseline::splat(at))), 1 / (1 + std::exp(-static_cast<double>(at)))), 4)
        << x;
  }
  EXPECT_EQ(first_lane(baseline::sigmoid(baseline::splat(0))), 0.5F);
  EXPECT_EQ(first_lane(baseline::sigmoid(baseline::splat(-INFINITY))), 0.0F);
  EXPECT_EQ(first_lane(baseline::sigmoid(baseline::splat(INFINITY))), 1.0F);
  for (const float nan : {NAN, -NAN}) EXPECT_TRUE(std::isnan(first_lane(baseline::sigmoid(baseline::splat(nan)))));
}

TEST(Simd, SumIsATreeOfHalves) {
  Seeded seeded;
  float lane[16];
  for (float& x : lane) x = static_cast<float>(random_numbers(1, seeded.rng)[0]);
  float expected[16];
  std::copy_n(lane, 16, expected);
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) expected[i] = expected[i] + expected[i + width];
  }
  EXPECT_EQ(baseline::sum(baseline::load(lane)), expected[0]);
  EXPECT_EQ(baseline::largest(baseline::load(lane)), *std::max_element(lane, lane + 16));
}

template <typename T>
std::vector<T> random_of(std::int64_t count, Rng& rng, double deviation = 1) {
  std::vector<T> out;
  for (const double number : random_numbers(count, rng, deviation)) {
    if constexpr (std::is_same_v<T, bf16_t>) {
      out.push_back(round_bf16(static_cast<float>(number)));
    } else {
      out.push_back(static_cast<T>(number));
    }
  }
  return out;
}

// Bits, so that NaN equals NaN.
template <typename... T>
std::vector<std::vector<std::byte>> bytes_of(const std::vector<T>&... values) {
  const auto copy = [](const auto& from) {
    std::vector<std::byte> bytes(from.size() * sizeof(from[0]));
    std::memcpy(bytes.data(), from.data(), bytes.size());
    return bytes;
  };
  return {copy(values)...};
}

// `call(function)` gives what the function wrote.
template <typename Function, typename Call>
void expect_same_bits(Function baseline, Function avx2, Function avx512, Function avx512_bf16, Call call) {
  const auto expected = call(baseline);
  EXPECT_TRUE(best_isa() < Isa::avx2 || call(avx2) == expected) << "avx2 differs from baseline";
  EXPECT_TRUE(best_isa() < Isa::avx512 || call(avx512) == expected) << "avx512 differs from baseline";
  EXPECT_TRUE(best_isa() < Isa::avx512_bf16 || call(avx512_bf16) == expected) << "avx512_bf16 differs from baseline";
}

float number_of(float value) { return value; }
float number_of(bf16_t value) { return widen(value); }

// Of what is made of exp, in which the baseline rounds more often: `call(function)` gives numbers. The others agree
// with each other to the bit, and with the baseline within rounding.
template <typename Function, typename Call>
void expect_same_where_fused(Function baseline, Function avx2, Function avx512, Function avx512_bf16, Call call) {
  if (best_isa() < Isa::avx2) return;
  const auto expected = call(baseline);
  const auto fused = call(avx2);
  using T = std::decay_t<decltype(expected[0])>;
  const float relative = std::is_same_v<T, float> ? 2e-5F : 1.0F / 128;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const float wanted = number_of(expected[i]);
    const float found = number_of(fused[i]);
    if (found == wanted || (std::isnan(found) && std::isnan(wanted))) continue;
    ASSERT_NEAR(found, wanted, relative * std::abs(wanted) + 1e-6F) << i;
  }
  for (const auto& [isa, function] : {std::pair(Isa::avx512, avx512), std::pair(Isa::avx512_bf16, avx512_bf16)}) {
    if (best_isa() < isa) return;
    const auto wide = call(function);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const bool nan = std::isnan(number_of(wide[i])) && std::isnan(number_of(fused[i]));
      ASSERT_TRUE(nan || std::memcmp(&wide[i], &fused[i], sizeof wide[i]) == 0) << i << ": " << name_of(isa);
    }
  }
}

template <typename T>
class Targets : public testing::Test {
 protected:
  static constexpr std::int64_t rows = 21;
  static constexpr std::int64_t cols = 75;  // strips and a short one
  static constexpr std::int64_t count = rows * cols;

  std::vector<T> random(std::int64_t n = count, double deviation = 1) { return random_of<T>(n, seeded.rng, deviation); }
  std::vector<float> random_floats(std::int64_t n) { return random_of<float>(n, seeded.rng); }

  Seeded seeded;
};

using Types = testing::Types<float, bf16_t>;
TYPED_TEST_SUITE(Targets, Types);

#define SPILLWAY_EACH_TARGET(type, name)                                                                \
  static_cast<type>(&baseline::name), static_cast<type>(&avx2::name), static_cast<type>(&avx512::name), \
      static_cast<type>(&avx512_bf16::name)

TYPED_TEST(Targets, ElementwiseOpsAgree) {
  using T = TypeParam;
  std::vector<T> a = this->random(this->count, 30);
  for (const float x : {0.0F, -87.3365F, -87.3366F, 87.4F, -INFINITY, INFINITY, NAN, -NAN}) {
    if constexpr (std::is_same_v<T, bf16_t>) {
      a.push_back(round_bf16(x));
    } else {
      a.push_back(x);
    }
  }
  const std::vector<T> b = this->random(static_cast<std::int64_t>(a.size()));
  const auto n = static_cast<std::int64_t>(a.size());
  using One = void (*)(const T*, T*, std::int64_t);
  using Two = void (*)(const T*, const T*, T*, std::int64_t);
  const auto one = [&](One f) {
    std::vector<T> y(a.size());
    f(a.data(), y.data(), n);
    return y;
  };
  const auto two = [&](Two f) {
    std::vector<T> y(a.size());
    f(a.data(), b.data(), y.data(), n);
    return y;
  };
  expect_same_bits(SPILLWAY_EACH_TARGET(Two, add_elements), [&](Two f) { return bytes_of(two(f)); });
  expect_same_where_fused(SPILLWAY_EACH_TARGET(One, gelu_elements), one);
  expect_same_where_fused(SPILLWAY_EACH_TARGET(Two, gelu_dx_elements), two);
  expect_same_where_fused(SPILLWAY_EACH_TARGET(Two, swiglu_elements), two);
  const std::vector<T> dy = this->random(static_cast<std::int64_t>(a.size()));
  expect_same_where_fused(SPILLWAY_EACH_TARGET(void (*)(const SwigluDx<T>&), swiglu_dx_elements), [&](auto f) {
    std::vector<T> dgate(a.size());
    std::vector<T> dup(a.size());
    f({a.data(), b.data(), dy.data(), dgate.data(), dup.data(), n});
    dgate.insert(dgate.end(), dup.begin(), dup.end());
    return dgate;
  });
}

TYPED_TEST(Targets, NormsAgree) {
  using T = TypeParam;
  const std::vector<T> x = this->random();
  const std::vector<T> w = this->random(this->cols);
  const std::vector<T> b = this->random(this->cols);
  const std::vector<T> dy = this->random();
  const std::vector<float> mean = this->random_floats(this->rows);
  const std::vector<float> rstd = this->random_floats(this->rows);
  std::vector<T> y(x.size());
  std::vector<float> p(this->rows);
  std::vector<float> q(this->rows);
  std::vector<float> wide(this->cols);
  std::vector<float> wide2(this->cols);
  expect_same_bits(SPILLWAY_EACH_TARGET(void (*)(const RmsnormGroups<T>&), rmsnorm_groups), [&](auto f) {
    f({x.data(), w.data(), y.data(), p.data(), this->rows, this->cols, 1e-5F});
    return bytes_of(y, p);
  });
  expect_same_bits(SPILLWAY_EACH_TARGET(void (*)(const RmsnormDxBlock<T>&), rmsnorm_dx_block), [&](auto f) {
    f({x.data(), w.data(), rstd.data(), dy.data(), y.data(), wide.data(), this->rows, this->cols});
    return bytes_of(y, wide);
  });
  expect_same_bits(SPILLWAY_EACH_TARGET(void (*)(const LayernormRows<T>&), layernorm_rows), [&](auto f) {
    f({x.data(), w.data(), b.data(), y.data(), p.data(), q.data(), this->rows, this->cols, 1e-5F});
    return bytes_of(y, p, q);
  });
  expect_same_bits(SPILLWAY_EACH_TARGET(void (*)(const LayernormDxBlock<T>&), layernorm_dx_block), [&](auto f) {
    f({x.data(), w.data(), mean.data(), rstd.data(), dy.data(), y.data(), wide.data(), wide2.data(), this->rows,
       this->cols});
    return bytes_of(y, wide, wide2);
  });
}

template <typename T>
AttentionKernels<T> (*const attention_of_targets[])() = {};
template <>
AttentionKernels<float> (*const attention_of_targets<float>[])() = {SPILLWAY_TARGETS(attention_kernels_f32)};
template <>
AttentionKernels<bf16_t> (*const attention_of_targets<bf16_t>[])() = {SPILLWAY_TARGETS(attention_kernels_bf16)};

TYPED_TEST(Targets, AttentionAgrees) {
  using T = TypeParam;
  for (const std::int64_t size : {16, 48, 128}) {
    for (const bool diagonal : {false, true}) {
      const SoftmaxBlock block{.size = size, .diagonal = diagonal, .scale = 0.25F, .factor = 0.36F};
      std::vector<float> scores = this->random_floats(size * size);
      scores[5] = -1000;  // no weight
      scores[6] = NAN;
      scores[7] = 3e30F;  // counts as 2
      std::vector<float> dp = this->random_floats(size * size);
      std::vector<float> delta = this->random_floats(size);
      scores[8] = -347;  // 2^-125.5, whose gradient is subnormal
      dp[8] = 1;
      delta[8] = 0;
      std::vector<float> offsets(static_cast<std::size_t>(size), 1.5F);
      offsets.back() = INFINITY;  // of a row after the last token
      const auto all = [&](AttentionKernels<T> (*kernels)()) {
        std::vector<float> largest(static_cast<std::size_t>(size * 16), -INFINITY);
        std::vector<float> sums(largest.size());
        std::vector<T> terms(scores.size());
        std::vector<T> p(scores.size());
        std::vector<T> ds(scores.size());
        const AttentionKernels<T> kernel = kernels();
        kernel.find_largest(block, scores.data(), largest.data());
        kernel.exponentials(block, false, scores.data(), offsets.data(), terms.data(), sums.data());
        kernel.gradient(block, false, scores.data(), dp.data(), offsets.data(), delta.data(), p.data(), ds.data());
        for (const float x : {kernel.largest(largest.data() + 16), kernel.total(sums.data() + 16)}) {
          if constexpr (std::is_same_v<T, float>) p.push_back(x);
        }
        terms.insert(terms.end(), p.begin(), p.end());
        terms.insert(terms.end(), ds.begin(), ds.end());
        return terms;
      };
      SCOPED_TRACE(fmt::format("{} x {}{}", size, size, diagonal ? ", on the diagonal" : ""));
      expect_same_where_fused(attention_of_targets<T>[0], attention_of_targets<T>[1], attention_of_targets<T>[2],
                              attention_of_targets<T>[3], all);
    }
  }
}

TYPED_TEST(Targets, RopeAgrees) {
  using T = TypeParam;
  constexpr std::int64_t heads = 3;
  constexpr std::int64_t head_dim = 50;
  const std::vector<T> x = this->random(5 * heads * head_dim);
  const std::vector<std::int32_t> positions{0, 1, 77, 4096, 1'000'000};
  std::vector<float> frequencies;
  for (int i = 0; i < head_dim / 2; ++i) frequencies.push_back(std::pow(500000.0F, -static_cast<float>(i) / 25.0F));
  std::vector<T> y(x.size());
  std::vector<float> table(static_cast<std::size_t>(head_dim));
  expect_same_bits(SPILLWAY_EACH_TARGET(void (*)(const RopeRows<T>&), rope_rows), [&](auto f) {
    f({x.data(), positions.data(), frequencies.data(), y.data(), table.data(), 5, heads, head_dim, false});
    return bytes_of(y);
  });
}

TYPED_TEST(Targets, SumsAgree) {
  using T = TypeParam;
  const std::vector<T> x = this->random();
  std::vector<float> sums(this->cols);
  expect_same_bits(SPILLWAY_EACH_TARGET(void (*)(const ColumnSums<T>&), sum_columns), [&](auto f) {
    f({x.data(), sums.data(), this->rows, this->cols, this->cols});
    return bytes_of(sums);
  });
  const std::vector<float> partials = this->random_floats(this->count);
  expect_same_bits(SPILLWAY_EACH_TARGET(void (*)(const AddPartials&), sum_partials), [&](auto f) {
    f({partials.data(), nullptr, sums.data(), this->rows, this->cols, this->cols});
    return bytes_of(sums);
  });
}

TEST(RoundTargets, Agree) {
  Seeded seeded;
  std::vector<float> x(100'003);
  for (float& value : x) value = std::bit_cast<float>(static_cast<std::uint32_t>(seeded.rng()));  // NaN included
  std::vector<bf16_t> y(x.size());
  expect_same_bits(SPILLWAY_TARGETS(round_elements), [&](auto f) {
    f(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    return bytes_of(y);
  });
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], round_bf16(x[i]));
}

}  // namespace
}  // namespace spillway::ops_test
