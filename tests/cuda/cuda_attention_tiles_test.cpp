// What attention's kernels ask of a block's shared memory; needs no device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "cuda/attention_tiles.h"

namespace spillway::cuda {
namespace {

constexpr Float types[] = {Float::f32, Float::bf16};

// Begin at multiples of 128 bytes, in order, the last one within the whole.
void expect_ordered(const std::vector<int>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i] % 128, 0);
    if (i == 0) continue;
    EXPECT_GT(parts[i], parts[i - 1]);
  }
}

TEST(CudaAttentionTiles, FitEveryDeviceAtEveryHeadSize) {
  EXPECT_EQ(least_shared_bytes, 101376);
  for (const Float type : types) {
    for (std::int64_t head_dim = 1; head_dim <= attention_most_head_dim; ++head_dim) {
      SCOPED_TRACE(testing::Message() << "heads of " << head_dim << (type == Float::f32 ? " in f32" : " in bf16"));
      const AttentionLayout forward = attention_layout(type, head_dim);
      const AttentionDxLayout keys = dk_dv_layout(type, head_dim);
      const AttentionDxLayout queries = dq_layout(type, head_dim);
      EXPECT_LE(forward.bytes, least_shared_bytes);
      EXPECT_LE(keys.bytes, least_shared_bytes);
      EXPECT_LE(queries.bytes, least_shared_bytes);
      EXPECT_GE(forward.rows.width, head_dim);
      EXPECT_EQ(forward.rows.width % 16, 0);
      expect_ordered({forward.q, forward.k, forward.v, forward.scores, forward.terms, forward.o, forward.bytes});
      expect_ordered({keys.q, keys.d_o, keys.k, keys.v, keys.scores, keys.dp, keys.p, keys.ds, keys.lse, keys.delta,
                      keys.first, keys.second, keys.bytes});
      expect_ordered({queries.q, queries.d_o, queries.k, queries.v, queries.scores, queries.dp, queries.p, queries.ds,
                      queries.lse, queries.delta, queries.first, queries.bytes});
    }
  }
}

// By hand: 64 queries and 32 keys of 128 elements, rows 136 and 40 apart.
TEST(CudaAttentionTiles, ALayoutHoldsItsTiles) {
  const AttentionLayout at = attention_layout(Float::bf16, 128);
  EXPECT_EQ(at.k - at.q, 64 * 136 * 2);
  EXPECT_EQ(at.v - at.k, 32 * 136 * 2);
  EXPECT_EQ(at.scores - at.v, 32 * 136 * 2);
  EXPECT_EQ(at.terms - at.scores, 64 * 40 * 4);
  EXPECT_EQ(at.o - at.terms, 64 * 40 * 2);
  EXPECT_EQ(at.bytes - at.o, 64 * 136 * 4);
}

// The matrix units make 16 x 16 elements at a time, and several threads of one warp share a row of queries in forward.
TEST(CudaAttentionTiles, SidesSuitTheKernels) {
  for (const Float type : types) {
    const int unit = type == Float::bf16 ? 16 : 8;
    for (const int most : {64, 128, 256}) {
      const AttentionTiles forward = attention_tiles(type, most);
      for (const AttentionTiles& tiles : {forward, dk_dv_tiles(type, most), dq_tiles(type, most)}) {
        EXPECT_EQ(tiles.queries % unit, 0);
        EXPECT_EQ(tiles.keys % unit, 0);
      }
      EXPECT_GE(forward.queries, 4);
      EXPECT_LE(forward.queries, 128);
      EXPECT_EQ(128 % forward.queries, 0);
    }
  }
}

TEST(CudaAttentionTiles, LargerHeadsAreRefused) {
  EXPECT_NO_THROW(check_attention_heads(attention_most_head_dim));
  try {
    check_attention_heads(attention_most_head_dim + 1);
    FAIL() << "taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("head_dim is 257"));
    EXPECT_THAT(error.what(), testing::HasSubstr("--device cpu"));
  }
}

}  // namespace
}  // namespace spillway::cuda
