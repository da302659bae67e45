#include "ops/reduce/reduce.h"
#include "ops/reduce/reference.h"
#include "ops_harness.h"

namespace spillway::ops_test {
namespace {

std::vector<double> doubles(const std::vector<float>& numbers) { return {numbers.begin(), numbers.end()}; }

struct ReduceCase {
  DType dtype;
  std::int64_t rows, cols;
};

class Reduce : public testing::TestWithParam<ReduceCase> {
 protected:
  Seeded seeded;
};

INSTANTIATE_TEST_SUITE_P(Shapes, Reduce,
                         testing::Values(ReduceCase{DType::f32, 1, 5}, ReduceCase{DType::f32, 600, 1100},
                                         ReduceCase{DType::f32, 256, 64}, ReduceCase{DType::bf16, 257, 512},
                                         ReduceCase{DType::bf16, 1000, 79}));

// To the bit: the order of the sums is the promise.
TEST_P(Reduce, ColumnSumsAddRowsInOrder) {
  const ReduceCase p = GetParam();
  const Matrix dy = random_matrix(p.dtype, p.rows, p.cols, seeded.rng);
  const OpCase op{&column_sums_spec, {}, {dy}};
  const Matrix sums = run(op)[0];
  EXPECT_EQ(sums.type, (ValueType{DType::f32, (p.rows + 255) / 256, p.cols}));
  EXPECT_EQ(sums.numbers, doubles(reference::column_sums(floats(dy), static_cast<std::size_t>(p.cols), 256)));
  expect_bits_do_not_depend_on_schedule(op);
}

TEST_P(Reduce, AddPartialsContinuesTheAccumulatorInOrder) {
  const ReduceCase p = GetParam();
  const Matrix partials = random_matrix(DType::f32, p.rows, p.cols, seeded.rng);
  const Matrix accumulator = random_matrix(DType::f32, p.cols, 1, seeded.rng);
  for (const Matrix& start : {absent(), accumulator}) {
    const OpCase op{&add_partials_spec, {}, {partials, start}};
    const std::vector<float> expected =
        reference::add_partials(floats(partials), static_cast<std::size_t>(p.cols), floats(start));
    EXPECT_EQ(run(op)[0].numbers, doubles(expected));
    expect_bits_do_not_depend_on_schedule(op);
  }
}

}  // namespace
}  // namespace spillway::ops_test
