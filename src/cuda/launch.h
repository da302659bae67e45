// The kernels written for CUDA, as functions that start them on a stream. Addresses are the device's; operands are as
// in the header of each op under ops/, and so are the order of sums and the roundings. Nothing here waits, and nothing
// depends on how many multiprocessors a device has: the same bits at every run on one device.
//
// Free of CUDA's own headers, so that it can be included, and checked, without the toolkit. A failure to start shows in
// check_launch of status.h.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace spillway::cuda {

using Stream = CUstream_st*;

enum class Float : std::uint8_t { f32, bf16 };  // what a void* of a value holds

// --- Element by element; results may lie in place of a read ---
void add(Stream stream, Float type, const void* a, const void* b, void* y, std::int64_t count);
void gelu(Stream stream, Float type, const void* x, void* y, std::int64_t count);
void gelu_dx(Stream stream, Float type, const void* x, const void* dy, void* dx, std::int64_t count);
void swiglu(Stream stream, Float type, const void* gate, const void* up, void* y, std::int64_t count);
struct SwigluDx {
  const void* gate;
  const void* up;
  const void* dy;
  void* dgate;
  void* dup;
};
void swiglu_dx(Stream stream, Float type, const SwigluDx& of, std::int64_t count);
void round_to_bf16(Stream stream, const float* x, std::uint16_t* y, std::int64_t count);

// --- Rows ---
struct Rope {
  const void* x;
  const std::int32_t* positions;
  const float* frequencies;
  void* y;
  std::int64_t rows, heads, head_dim;
  bool inverse;
};
void rope(Stream stream, Float type, const Rope& of);

struct Layernorm {
  const void* x;
  const void* w;
  const void* b;
  void* y;
  float* mean;
  float* rstd;
  std::int64_t rows, cols;
  float epsilon;
};
void layernorm(Stream stream, Float type, const Layernorm& of);

struct LayernormDx {
  const void* x;
  const void* w;
  const float* mean;
  const float* rstd;
  const void* dy;
  void* dx;
  float* partial_w;
  float* partial_b;
  std::int64_t rows, cols, block_rows;
};
void layernorm_dx(Stream stream, Float type, const LayernormDx& of);

struct Rmsnorm {
  const void* x;
  const void* w;
  void* y;
  float* rstd;
  std::int64_t groups, width;
  float epsilon;
};
void rmsnorm(Stream stream, Float type, const Rmsnorm& of);

struct RmsnormDx {
  const void* x;
  const void* w;
  const float* rstd;
  const void* dy;
  void* dx;
  float* partial;
  std::int64_t groups, width, block_groups;
};
void rmsnorm_dx(Stream stream, Float type, const RmsnormDx& of);

// A rectangle of rows, as bytes: row r of `to` is `row_bytes` from row `row_begin` + r, `skip_bytes` into it.
struct CopiedRows {
  const void* from;
  void* to;
  std::int64_t rows, row_bytes, row_begin, from_row_bytes, skip_bytes;
};
void copy_rows(Stream stream, const CopiedRows& of);

// --- Embeddings ---
struct EmbedRows {
  const std::int32_t* ids;
  const void* tile;
  const void* previous;  // or null
  void* out;
  std::int64_t rows, row_bytes, row_begin, tile_rows;
};
void embed_rows(Stream stream, const EmbedRows& of);

// Adds to `out`, which holds the accumulator or zeros already.
struct EmbedGrad {
  const std::int32_t* ids;
  const void* dx;
  float* out;
  std::int64_t tokens, rows, cols, row_begin;
};
void embed_grad(Stream stream, Float type, const EmbedGrad& of);

struct AddPositions {
  const void* x;
  const void* weight;
  const std::int32_t* positions;
  void* out;
  std::int64_t rows, cols, position_count;
};
void add_positions(Stream stream, Float type, const AddPositions& of);

// --- Sums ---
void column_sums(Stream stream, Float type, const void* x, float* sums, std::int64_t rows, std::int64_t cols,
                 std::int64_t block_rows);
void add_partials(Stream stream, const float* partials, const float* accumulator, float* sums, std::int64_t count,
                  std::int64_t cols);
void sum_squares(Stream stream, Float type, const void* grad, double* sums, std::int64_t elements,
                 std::int64_t block_elements);

// Parts of a long array, in order; lies in the device's memory.
struct Part {
  const void* data;
  std::int64_t count;
};
void loss_sum(Stream stream, const Part* parts, std::int64_t part_count, double* sum);
void clip_factor(Stream stream, const Part* parts, std::int64_t part_count, const float* max_norm, double* norm,
                 float* factor);

// --- Cross-entropy ---
struct LogitTile {
  const float* logits;
  void* dlogits;  // or null
  std::int64_t cols;
};
struct CrossEntropy {
  const std::int32_t* targets;
  const float* scale;
  const LogitTile* tiles;  // in the device's memory
  float* losses;
  std::int64_t tile_count, rows, vocabulary;
  bool gradient;
};
void cross_entropy(Stream stream, Float dlogits, const CrossEntropy& of);

// --- Update ---
// `scalars` are AdamwScalars. Reads and writes of one index may be the same.
struct Adamw {
  const void* weight;
  const void* exp_avg;
  const void* exp_avg_sq;
  const std::uint16_t* low;  // only with bf16
  const void* grad;
  const float* clip;  // or null
  const float* scalars;
  void* weight_out;
  void* exp_avg_out;
  void* exp_avg_sq_out;
  std::uint16_t* low_out;
  bool decay;
};
void adamw(Stream stream, Float type, const Adamw& of, std::int64_t count);
// Moments as in ops/adamw/packed.h, changed in place: `exp_avg` is `exp_avg_out`.
void adamw_packed(Stream stream, Float type, const Adamw& of, std::int64_t rows, std::int64_t cols,
                  std::int64_t row_bytes);

// --- Attention ---
// Rows of heads: element i of head h at row r is first[r * stride + h * head_dim + i].
struct Heads {
  const void* first;
  std::int64_t stride;
};
struct HeadsOut {
  void* first;
  std::int64_t stride;
};
struct AttentionSizes {
  std::int64_t sequences, sequence_length, heads, kv_heads, head_dim;
  float scale;
};
struct Attention {
  AttentionSizes sizes;
  Heads q, k, v;
  HeadsOut o;
  float* lse;
};
struct AttentionDx {
  AttentionSizes sizes;
  Heads q, k, v, o, d_o;
  const float* lse;
  float* delta;  // scratch: a number for each row and head
  HeadsOut dq, dk, dv;
};
// Heads of at most attention_most_head_dim; here and in generation.
inline constexpr std::int64_t attention_most_head_dim = 256;
void attention(Stream stream, Float type, const Attention& of);
void attention_dx(Stream stream, Float type, const AttentionDx& of);

// --- Generation ---
struct KvAppend {
  const void* fresh;
  const std::int32_t* positions;
  void* out;  // holds the cache already
  std::int64_t fresh_rows, cache_rows, row_bytes;
};
void kv_append(Stream stream, const KvAppend& of);
struct KvAttention {
  const void* q;
  const void* keys;
  const void* values;
  const std::int32_t* positions;
  void* o;
  std::int64_t rows, heads, kv_heads, head_dim;
  float scale;
};
void kv_attention(Stream stream, Float type, const KvAttention& of);

}  // namespace spillway::cuda
