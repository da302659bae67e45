// How attention's kernels cut their work, and where the parts of a block's shared memory lie: arithmetic on the host. A
// kernel is given its layout as it is asked for here, so a test without a device sees what a block takes.
//
// Tiles follow from dtype and head size alone, never from the device: a card with more memory would otherwise have
// other bits. So every layout fits in what the least of the cards gives a block, least_shared_bytes.
#pragma once

#include <cstdint>

#include "cuda/launch.h"

namespace spillway::cuda {

// Bytes of shared memory that a block may have on every device since sm_80: 99 KiB on sm_86, sm_89 and sm_120, more on
// the others. CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
inline constexpr int least_shared_bytes = 99 * 1024;

// Throws UserError for heads that attention has no kernels for: larger than attention_most_head_dim.
void check_attention_heads(std::int64_t head_dim);

// Rows of q, and rows of k and v, that a block works on at a time: multiples of 16 in bf16, of 8 in f32.
struct AttentionTiles {
  int queries = 0;
  int keys = 0;
};

// Kernels are made for heads of up to 64, 128 and 256 elements: which of them serve these.
constexpr int attention_width_class(std::int64_t head_dim) { return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256; }

// `most` is a width class.
constexpr AttentionTiles attention_tiles(Float type, int most) {
  if (type == Float::f32) return most <= 128 ? AttentionTiles{32, 32} : AttentionTiles{16, 16};
  return most <= 64 ? AttentionTiles{64, 64} : most <= 128 ? AttentionTiles{64, 32} : AttentionTiles{32, 32};
}

constexpr AttentionTiles dk_dv_tiles(Float type, int most) {
  if (type == Float::f32) return {most <= 128 ? 32 : 16, most <= 64 ? 32 : most <= 128 ? 16 : 8};
  return {32, most <= 64 ? 64 : most <= 128 ? 32 : 16};
}

constexpr AttentionTiles dq_tiles(Float type, int most) {
  if (type == Float::f32) return {most <= 128 ? 32 : 16, most <= 64 ? 32 : 16};
  return {most <= 64 ? 64 : 32, most <= 128 ? 32 : 16};
}

// Hands out shared memory in order, every part at a multiple of 128 bytes.
class SharedParts {
 public:
  constexpr int take(int count, int element_bytes) {
    const int at = bytes_;
    bytes_ += (count * element_bytes + 127) / 128 * 128;
    return at;
  }
  constexpr int bytes() const { return bytes_; }

 private:
  int bytes_ = 0;
};

// Of a tile's rows, in elements: the width of a head, a multiple of 16, and how far rows lie apart, which is 8 more so
// that rows do not meet in the same banks.
struct TileRows {
  int width = 0;
  int head_stride = 0;  // in tiles of q, k, v, o
  int key_stride = 0;   // in tiles of scores
};

constexpr TileRows tile_rows(std::int64_t head_dim, int keys) {
  const int width = static_cast<int>((head_dim + 15) / 16 * 16);
  return {width, width + 8, keys + 8};
}

// Where parts begin, in bytes.
struct AttentionLayout {
  TileRows rows;
  int q = 0, k = 0, v = 0;
  int scores = 0, terms = 0;
  int o = 0;
  int bytes = 0;  // of all
};

constexpr int bytes_of(Float type) { return type == Float::f32 ? 4 : 2; }

constexpr AttentionLayout attention_layout(Float type, std::int64_t head_dim) {
  const AttentionTiles tiles = attention_tiles(type, attention_width_class(head_dim));
  const int element = bytes_of(type);
  SharedParts parts;
  AttentionLayout at;
  at.rows = tile_rows(head_dim, tiles.keys);
  at.q = parts.take(tiles.queries * at.rows.head_stride, element);
  at.k = parts.take(tiles.keys * at.rows.head_stride, element);
  at.v = parts.take(tiles.keys * at.rows.head_stride, element);
  at.scores = parts.take(tiles.queries * at.rows.key_stride, 4);
  at.terms = parts.take(tiles.queries * at.rows.key_stride, element);
  at.o = parts.take(tiles.queries * at.rows.head_stride, 4);
  at.bytes = parts.bytes();
  return at;
}

struct AttentionDxLayout {
  TileRows rows;
  int q = 0, d_o = 0, k = 0, v = 0;
  int scores = 0, dp = 0, p = 0, ds = 0;
  int lse = 0, delta = 0;
  int first = 0, second = 0;  // dk and dv, or dq and nothing
  int bytes = 0;
};

constexpr AttentionDxLayout attention_dx_layout(Float type, std::int64_t head_dim, AttentionTiles tiles, bool of_keys) {
  const int element = bytes_of(type);
  SharedParts parts;
  AttentionDxLayout at;
  at.rows = tile_rows(head_dim, tiles.keys);
  at.q = parts.take(tiles.queries * at.rows.head_stride, element);
  at.d_o = parts.take(tiles.queries * at.rows.head_stride, element);
  at.k = parts.take(tiles.keys * at.rows.head_stride, element);
  at.v = parts.take(tiles.keys * at.rows.head_stride, element);
  at.scores = parts.take(tiles.queries * at.rows.key_stride, 4);
  at.dp = parts.take(tiles.queries * at.rows.key_stride, 4);
  at.p = parts.take(tiles.queries * at.rows.key_stride, element);
  at.ds = parts.take(tiles.queries * at.rows.key_stride, element);
  at.lse = parts.take(tiles.queries, 4);
  at.delta = parts.take(tiles.queries, 4);
  at.first = parts.take((of_keys ? tiles.keys : tiles.queries) * at.rows.head_stride, 4);
  at.second = parts.take(of_keys ? tiles.keys * at.rows.head_stride : 0, 4);
  at.bytes = parts.bytes();
  return at;
}

constexpr AttentionDxLayout dk_dv_layout(Float type, std::int64_t head_dim) {
  return attention_dx_layout(type, head_dim, dk_dv_tiles(type, attention_width_class(head_dim)), true);
}

constexpr AttentionDxLayout dq_layout(Float type, std::int64_t head_dim) {
  return attention_dx_layout(type, head_dim, dq_tiles(type, attention_width_class(head_dim)), false);
}

}  // namespace spillway::cuda
