#include "ops/add/add.h"
#include "ops/add/reference.h"
#include "ops/gelu/gelu.h"
#include "ops/gelu/reference.h"
#include "ops/round/reference.h"
#include "ops/round/round.h"
#include "ops/swiglu/reference.h"
#include "ops/swiglu/swiglu.h"
#include "ops_harness.h"

namespace spillway::ops_test {
namespace {

struct ActivationCase {
  DType dtype;
  std::int64_t rows, cols;
};

// Below one strip, not a multiple of it, and several chunks of which the last is short.
class Activation : public testing::TestWithParam<ActivationCase> {
 protected:
  Matrix random(double deviation = 1) {
    return random_matrix(GetParam().dtype, GetParam().rows, GetParam().cols, rng, deviation);
  }

  Seeded seeded;
  Rng& rng = seeded.rng;
};

INSTANTIATE_TEST_SUITE_P(Shapes, Activation,
                         testing::Values(ActivationCase{DType::f32, 1, 15}, ActivationCase{DType::f32, 37, 1111},
                                         ActivationCase{DType::bf16, 1, 17}, ActivationCase{DType::bf16, 129, 260}));

TEST_P(Activation, AddIsTheRoundedSum) {
  const Matrix a = random();
  const Matrix b = random();
  const OpCase op{&add_spec, {}, {a, b}};
  std::vector<double> expected;  // one fp32 addition, then one rounding
  for (const double sum : reference::add(a.numbers, b.numbers)) {
    expected.push_back(rounded(a.type.dtype, static_cast<float>(sum)));
  }
  EXPECT_EQ(run(op)[0].numbers, expected);
  expect_bits_do_not_depend_on_schedule(op);
}

TEST_P(Activation, GeluEqualsReference) {
  const Matrix x = random(3);
  const OpCase op{&gelu_spec, {}, {x}};
  expect_close(run(op)[0], reference::gelu(x.numbers));
  expect_bits_do_not_depend_on_schedule(op);
}

TEST_P(Activation, GeluGradientEqualsReference) {
  const Matrix x = random(3);
  const Matrix dy = random();
  const OpCase op{&gelu_dx_spec, {}, {x, dy}};
  expect_close(run(op)[0], reference::gelu_dx(x.numbers, dy.numbers));
  expect_bits_do_not_depend_on_schedule(op);
}

TEST_P(Activation, SwigluEqualsReference) {
  const Matrix gate = random(3);
  const Matrix up = random();
  const OpCase op{&swiglu_spec, {}, {gate, up}};
  expect_close(run(op)[0], reference::swiglu(gate.numbers, up.numbers));
  expect_bits_do_not_depend_on_schedule(op);
}

TEST_P(Activation, SwigluGradientEqualsReference) {
  const Matrix gate = random(3);
  const Matrix up = random();
  const Matrix dy = random();
  const OpCase op{&swiglu_dx_spec, {}, {gate, up, dy}};
  const std::vector<Matrix> made = run(op);
  const auto expected = reference::swiglu_dx(gate.numbers, up.numbers, dy.numbers);
  expect_close(made[0], expected.dgate);
  expect_close(made[1], expected.dup);
  expect_bits_do_not_depend_on_schedule(op);
}

// Both writes in the places of reads at once, both ways round.
TEST_P(Activation, SwigluGradientMayReplaceTwoReads) {
  const OpCase op{&swiglu_dx_spec, {}, {random(), random(), random()}};
  const auto expected = run_to_bytes(op);
  EXPECT_EQ(run_to_bytes(op, {2, 1, {{0, 0}, {1, 1}}}), expected);
  EXPECT_EQ(run_to_bytes(op, {2, 2, {{0, 2}, {1, 1}}}), expected);
  EXPECT_EQ(run_to_bytes(op, {2, 3, {{0, 0}, {1, 2}}}), expected);
}

TEST(ActivationReference, GradientsEqualFiniteDifferences) {
  Seeded seeded;
  const std::vector<double> x = random_numbers(40, seeded.rng, 2);
  const std::vector<double> up = random_numbers(40, seeded.rng);
  const std::vector<double> dy = random_numbers(40, seeded.rng);
  expect_gradient(reference::gelu_dx(x, dy), reference::gelu, x, dy);
  const auto gradients = reference::swiglu_dx(x, up, dy);
  expect_gradient(
      gradients.dgate, [&](const auto& at) { return reference::swiglu(at, up); }, x, dy);
  expect_gradient(
      gradients.dup, [&](const auto& at) { return reference::swiglu(x, at); }, up, dy);
}

TEST(Activation, LargeInputsSaturate) {
  const Matrix x = matrix({DType::f32, 1, 6}, {-1e4, -200, -90, 90, 200, 1e4});
  const Matrix ones = matrix({DType::f32, 1, 6}, {1, 1, 1, 1, 1, 1});
  const std::vector<double> kept{0, 0, 0, 90, 200, 1e4};
  const std::vector<double> slope{0, 0, 0, 1, 1, 1};
  EXPECT_EQ(run({&gelu_spec, {}, {x}})[0].numbers, kept);
  EXPECT_EQ(run({&gelu_dx_spec, {}, {x, ones}})[0].numbers, slope);
  expect_close(run({&swiglu_spec, {}, {x, ones}})[0], kept);
  expect_close(run({&swiglu_dx_spec, {}, {x, ones, ones}})[0], slope);
}

TEST(Round, EqualsTheScalarRoundingOfEveryPattern) {
  Seeded seeded;
  std::vector<double> numbers{
      0, -0.0, 1e-40, -1e-45, 3.4e38, 1 + 1.0 / 256, 1 + 3.0 / 256, 1 + 1.0 / 256 + 1e-6, INFINITY, -INFINITY};
  for (int i = 0; i < 40000; ++i) {
    const auto pattern = static_cast<std::uint32_t>(seeded.rng());
    if (!std::isnan(std::bit_cast<float>(pattern))) numbers.push_back(std::bit_cast<float>(pattern));
  }
  const Matrix x = matrix({DType::f32, static_cast<std::int64_t>(numbers.size()), 1}, numbers);
  const OpCase op{&round_to_bf16_spec, {}, {x}};
  const std::vector<std::byte> made = run_to_bytes(op)[0];
  const std::vector<bf16_t> expected = reference::round_to_bf16({numbers.begin(), numbers.end()});
  EXPECT_EQ(std::memcmp(made.data(), expected.data(), made.size()), 0);
  expect_bits_do_not_depend_on_schedule(op);
}

}  // namespace
}  // namespace spillway::ops_test
