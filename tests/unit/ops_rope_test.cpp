#include "ops/rope/reference.h"
#include "ops/rope/rope.h"
#include "ops_harness.h"

namespace spillway::ops_test {
namespace {

struct RopeCase {
  DType dtype;
  std::int64_t rows, heads, head_dim, last_position;
};

Matrix positions_up_to(std::int64_t last, std::int64_t rows, Rng& rng) {
  std::uniform_int_distribution<std::int64_t> any(0, last);
  std::vector<double> positions{static_cast<double>(last)};
  while (static_cast<std::int64_t>(positions.size()) < rows) positions.push_back(static_cast<double>(any(rng)));
  return matrix({DType::i32, rows, 1}, positions);
}

Matrix inverse_frequencies(std::int64_t head_dim) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    frequencies.push_back(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  }
  return matrix({DType::f32, head_dim / 2, 1}, frequencies);
}

class Rope : public testing::TestWithParam<RopeCase> {
 protected:
  Seeded seeded;
  Rng& rng = seeded.rng;
};

INSTANTIATE_TEST_SUITE_P(Shapes, Rope,
                         testing::Values(RopeCase{DType::f32, 130, 3, 64, 2047},
                                         RopeCase{DType::f32, 9, 2, 80, 1'000'000},
                                         RopeCase{DType::f32, 65, 1, 6, 1'000'000}, RopeCase{DType::f32, 1, 4, 2, 12},
                                         RopeCase{DType::bf16, 70, 2, 128, 131'071},
                                         RopeCase{DType::bf16, 67, 3, 24, 500}));

TEST_P(Rope, EqualsReference) {
  const RopeCase p = GetParam();
  const Matrix x = random_matrix(p.dtype, p.rows, p.heads * p.head_dim, rng);
  const Matrix positions = positions_up_to(p.last_position, p.rows, rng);
  const Matrix frequencies = inverse_frequencies(p.head_dim);
  for (const std::int64_t inverse : {0, 1}) {
    const OpCase op{&rope_spec, {{"head_dim", p.head_dim}, {"inverse", inverse}}, {x, positions, frequencies}};
    expect_close(run(op)[0], reference::rope(x.numbers, positions.numbers, frequencies.numbers, inverse != 0));
    expect_bits_do_not_depend_on_schedule(op);
  }
}

TEST_P(Rope, DoesNothingAtPositionZero) {
  const RopeCase p = GetParam();
  const Matrix x = random_matrix(p.dtype, p.rows, p.heads * p.head_dim, rng);
  const Matrix zeros = matrix({DType::i32, p.rows, 1}, std::vector<double>(static_cast<std::size_t>(p.rows), 0.0));
  const Attrs attrs{{"head_dim", p.head_dim}, {"inverse", std::int64_t{0}}};
  EXPECT_EQ(run({&rope_spec, attrs, {x, zeros, inverse_frequencies(p.head_dim)}})[0].numbers, x.numbers);
}

// Every quarter of the circle, near and at its edges.
TEST(RopeAngles, AreAccurateAroundTheCircle) {
  std::vector<double> frequencies;
  for (int i = 0; i < 1000; ++i) frequencies.push_back(1.5707963267948966 * i / 125);
  const Matrix turns = matrix({DType::f32, 1000, 1}, frequencies);
  std::vector<double> ones(2000, 0.0);
  std::fill_n(ones.begin(), 1000, 1.0);
  const Matrix x = matrix({DType::f32, 1, 2000}, ones);
  const Matrix position = matrix({DType::i32, 1, 1}, {1});
  const Attrs attrs{{"head_dim", std::int64_t{2000}}, {"inverse", std::int64_t{0}}};
  const Matrix y = run({&rope_spec, attrs, {x, position, turns}})[0];
  expect_close(y, reference::rope(x.numbers, position.numbers, turns.numbers, false), Tolerance{0, 2e-7});
}

TEST(RopeReference, GradientIsTheInverseRotation) {
  Seeded seeded;
  const std::vector<double> x = random_numbers(3 * 2 * 4, seeded.rng);
  const std::vector<double> dy = random_numbers(3 * 2 * 4, seeded.rng);
  const std::vector<double> positions{0, 5, 11};
  const std::vector<double> frequencies{1, 0.1};
  const auto forward = [&](const auto& at) { return reference::rope(at, positions, frequencies, false); };
  expect_gradient(reference::rope(dy, positions, frequencies, true), forward, x, dy);
}

}  // namespace
}  // namespace spillway::ops_test
