#include <gtest/gtest.h>

#include <random>

#include "base/dtype.h"
#include "state/state.h"

namespace spillway {
namespace {

struct Shape {
  std::int64_t rows = 0;
  std::int64_t cols = 1;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all = {{1, 1}, {768, 1}, {50257, 768}, {128256, 4096}, {151936, 896}, {1, 70000}, {300000, 1}};
  constexpr unsigned seed = 20240601;
  std::mt19937 random(seed);
  for (int i = 0; i < 400; ++i) {
    const auto any = [&](int most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); };
    all.push_back({any(i % 2 == 0 ? 100 : 5000), any(i % 3 == 0 ? 7 : 3000)});
  }
  return all;
}

TEST(StatePieces, ABlockIsTheWholeTensorOrAMultipleOf4KiB) {
  for (const Shape& shape : shapes()) {
    const std::int64_t rows = block_rows_of(shape.rows, shape.cols);
    ASSERT_GT(rows, 0);
    ASSERT_LE(rows, shape.rows);
    if (rows == shape.rows) continue;
    EXPECT_EQ(rows * shape.cols * size_of(DType::bf16) % 4096, 0) << shape.rows << " x " << shape.cols;
    EXPECT_EQ(rows * shape.cols * size_of(DType::f32) % 4096, 0) << shape.rows << " x " << shape.cols;
  }
}

TEST(StatePieces, ABlockIsAsLargeAsTheReductionWantsWhereWholeRowsAllowIt) {
  for (const Shape& shape : shapes()) {
    const std::int64_t rows = block_rows_of(shape.rows, shape.cols);
    if (rows == shape.rows) continue;
    // One unit of rows is the least that keeps blocks at multiples of 4 KiB.
    std::int64_t unit = 1;
    while (unit * shape.cols % 2048 != 0) unit *= 2;
    EXPECT_TRUE(rows == unit || rows * shape.cols <= reduction_block_elements);
    EXPECT_GT((rows + unit) * shape.cols, reduction_block_elements);
  }
  EXPECT_EQ(block_rows_of(64, 1024), 64);
  EXPECT_EQ(block_rows_of(1000, 1024), 64);
  EXPECT_EQ(block_rows_of(768, 1), 768);
}

TEST(StatePieces, PiecesCoverATensorInWholeBlocks) {
  for (const Shape& shape : shapes()) {
    for (const std::int64_t piece_elements : {std::int64_t{1}, reduction_block_elements, std::int64_t{1} << 20}) {
      State state;
      Tensor tensor;
      tensor.name = "weight";
      tensor.dtype = DType::bf16;
      tensor.rows = shape.rows;
      tensor.cols = shape.cols;
      const TensorId id = state.add(tensor, piece_elements);
      const std::int64_t block = state.tensor(id).block_rows;
      EXPECT_EQ(block, block_rows_of(shape.rows, shape.cols)) << "of the shape alone";
      std::int64_t row = 0;
      std::int64_t bytes = 0;
      for (std::int32_t i = 0; i < state.piece_count(id); ++i) {
        const auto piece_id = static_cast<PieceId>(index_of(state.first_piece(id)) + static_cast<std::size_t>(i));
        const Piece& piece = state.piece(piece_id);
        ASSERT_EQ(piece.row_begin, row);
        ASSERT_GT(piece.row_end, piece.row_begin);
        ASSERT_EQ(piece.row_begin % block, 0);
        ASSERT_TRUE(piece.row_end % block == 0 || piece.row_end == shape.rows);
        ASSERT_LE((piece.row_end - piece.row_begin) * shape.cols, std::max(piece_elements, block * shape.cols));
        std::int64_t in_blocks = piece.row_begin;
        for_each_block(state.tensor(id), piece, [&](std::int64_t begin, std::int64_t end) {
          EXPECT_EQ(begin, in_blocks);
          EXPECT_EQ(end, std::min(begin + block, piece.row_end));
          in_blocks = end;
        });
        ASSERT_EQ(in_blocks, piece.row_end);
        row = piece.row_end;
        bytes += state.bytes_of(piece_id);
      }
      ASSERT_EQ(row, shape.rows);
      ASSERT_EQ(bytes, state.tensor(id).bytes());
    }
  }
}

TEST(StatePieces, IdsOfATensorAreConsecutiveAndNamesAreFound) {
  State state;
  for (int t = 0; t < 5; ++t) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(t);
    tensor.rows = 100 * (t + 1);
    tensor.cols = 1024;
    state.add(tensor, reduction_block_elements);
  }
  std::size_t next = 0;
  for (std::size_t t = 0; t < state.tensors().size(); ++t) {
    const auto id = static_cast<TensorId>(t);
    EXPECT_EQ(state.find("t" + std::to_string(t)), id);
    EXPECT_EQ(index_of(state.first_piece(id)), next);
    next += static_cast<std::size_t>(state.piece_count(id));
  }
  EXPECT_EQ(next, state.pieces().size());
  EXPECT_EQ(state.find("t5"), TensorId::none);
  EXPECT_EQ(state.describe(static_cast<PieceId>(1)), "t0[64:100]");
}

}  // namespace
}  // namespace spillway
