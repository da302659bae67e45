#include "ops/attention/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/softmax.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/pack.h"
#include "ops/matmul/scratch_layout.h"
#include "ops/matmul/tile_matmul.h"

namespace spillway {
namespace {

constexpr double log2_e = 1.4426950408889634074;

// Columns of one head in a matrix of D.
template <typename D>
struct HeadRows {
  D* first = nullptr;  // row 0 of the head's sequence
  std::int64_t stride = 0;

  D* row(std::int64_t r) const { return first + r * stride; }
};

// The sizes of an op, and where the heads lie in its operands.
struct Grid {
  explicit Grid(const KernelKey& key)
      : shape(attention_shape(key.attrs)),
        packed(attention_packed(key.attrs)),
        scale(static_cast<float>(attention_scale(key.attrs))),
        factor(static_cast<float>(attention_scale(key.attrs) * log2_e)),
        sequences(key.reads[0].rows / shape.sequence_length),
        block(std::min(attention_block_rows, round_up(shape.sequence_length, 16))),
        blocks(divide_up(shape.sequence_length, block)),
        block_elements(block * shape.head_dim) {
    SPILLWAY_CHECK(scale > 0, "a scale of {}", scale);
  }

  SoftmaxBlock softmax(bool diagonal) const {
    return {.size = block, .diagonal = diagonal, .scale = scale, .factor = factor};
  }
  std::int64_t group() const { return shape.heads / shape.kv_heads; }
  std::int64_t rows_of(std::int64_t index) const { return std::min(block, shape.sequence_length - index * block); }

  enum class Part { q, k, v };
  // `operands` are q, k, v, or qkv alone.
  template <typename D, typename Byte>
  HeadRows<D> head(std::span<Byte* const> operands, Part part, std::int64_t sequence, std::int64_t head) const {
    const auto index = static_cast<std::size_t>(part);
    const std::int64_t starts[] = {0, shape.heads, shape.heads + shape.kv_heads, shape.heads + 2 * shape.kv_heads};
    const std::int64_t heads = packed ? starts[3] : starts[index + 1] - starts[index];
    const std::int64_t stride = heads * shape.head_dim;
    const std::int64_t column = ((packed ? starts[index] : 0) + head) * shape.head_dim;
    D* const base = reinterpret_cast<D*>(operands[packed ? 0 : index]);
    return {base + sequence * shape.sequence_length * stride + column, stride};
  }
  // Of o and do.
  template <typename D, typename Byte>
  HeadRows<D> output(Byte* operand, std::int64_t sequence, std::int64_t head) const {
    const std::int64_t stride = shape.heads * shape.head_dim;
    return {reinterpret_cast<D*>(operand) + sequence * shape.sequence_length * stride + head * shape.head_dim, stride};
  }
  // Of lse.
  template <typename Float, typename Byte>
  HeadRows<Float> scalar(Byte* operand, std::int64_t sequence, std::int64_t head) const {
    return {reinterpret_cast<Float*>(operand) + sequence * shape.sequence_length * shape.heads + head, shape.heads};
  }

  AttentionShape shape;
  bool packed = false;
  float scale = 1;
  float factor = 1;  // of scores, so that they are exponents of 2
  std::int64_t sequences = 0;
  std::int64_t block = 0;
  std::int64_t blocks = 0;
  std::int64_t block_elements = 0;  // of one block of q, k, v or o
};

// What products read: the dtype of the values, or f32 where the processor has no bf16 products.
template <typename D, typename T>
void copy_block(const Grid& grid, const HeadRows<const D>& from, std::int64_t index, T* to) {
  const std::int64_t d = grid.shape.head_dim;
  const std::int64_t rows = grid.rows_of(index);
  for (std::int64_t r = 0; r < rows; ++r) {
    const D* const row = from.row(index * grid.block + r);
    if constexpr (std::is_same_v<D, T>) {
      std::memcpy(to + r * d, row, static_cast<std::size_t>(d) * sizeof(T));
    } else {
      pack_kernels().widen(row, d, to + r * d);
    }
  }
  std::fill(to + rows * d, to + grid.block_elements, T{});
}

template <typename D>
void write_block(const Grid& grid, const float* from, std::int64_t index, const HeadRows<D>& to) {
  const std::int64_t d = grid.shape.head_dim;
  const auto scaled = row_kernels<D>().scaled;
  for (std::int64_t r = 0; r < grid.rows_of(index); ++r) {
    scaled(from + r * d, 1.0F, d, to.row(index * grid.block + r));
  }
}

// A product of blocks whose right factor is packed ahead, since it serves several: by register tiles where they serve,
// otherwise by the library, for which to pack is to copy.
class BlockProduct {
 public:
  BlockProduct(const MatmulShape& shape, ScratchLayout& layout)
      : accumulates_(shape.accumulate), dense_bytes_(shape.n * shape.k * size_of(shape.in)) {
    if (TileMatmul::serves(shape)) {
      tiles_.emplace(shape, layout);
    } else {
      library_.emplace(shape);
      scratch_ = layout.take(library_->scratch_bytes());
    }
  }
  std::int64_t compiled_products() const { return library_ ? 1 : 0; }

  std::int64_t packed_bytes() const { return round_up(tiles_ ? tiles_->packed_b_bytes() : dense_bytes_, 64); }
  bool packs_where_it_lies() const { return tiles_.has_value(); }
  // `b` has rows `stride` elements apart: only where it packs_where_it_lies.
  void pack(const void* b, std::int64_t stride, std::byte* to) const {
    if (tiles_) {
      tiles_->pack_b(b, stride, reinterpret_cast<std::uint32_t*>(to));
    } else {
      std::memcpy(to, b, static_cast<std::size_t>(dense_bytes_));
    }
  }

  void run(const void* a, const std::byte* packed_b, float* c, Triangle triangle, std::span<std::byte> scratch) const {
    if (tiles_) {
      const auto* const b = reinterpret_cast<const std::uint32_t*>(packed_b);
      for (std::int64_t task = 0; task < tiles_->tasks(); ++task) {
        SPILLWAY_CHECK(tiles_->part(task).row == 0, "a block is cut in parts of rows");
        tiles_->run(task, {.a = a, .packed_b = b, .sum = accumulates_ ? c : nullptr, .c = c, .triangle = triangle},
                    scratch);
      }
    } else {
      library_->run({.a = a, .b = packed_b, .bias = nullptr, .c = c, .scratch = scratch_part(scratch, scratch_)});
    }
  }

 private:
  bool accumulates_;
  std::int64_t dense_bytes_;
  std::optional<TileMatmul> tiles_;
  std::optional<Matmul> library_;
  std::int64_t scratch_ = 0;
};

// The two products that serve every block, and their right factors.
template <typename D, typename T>
class BlockProducts {
 public:
  BlockProducts(const Grid& grid, ScratchLayout& layout)
      : grid_(grid),
        inner_({.m = grid.block, .n = grid.block, .k = grid.shape.head_dim, .in = dtype, .transposed_b = true}, layout),
        outer_({.m = grid.block, .n = grid.shape.head_dim, .k = grid.block, .in = dtype, .accumulate = true}, layout),
        copy_(layout.take(grid.block_elements * static_cast<std::int64_t>(sizeof(T)))) {}
  std::int64_t compiled_products() const { return inner_.compiled_products() + outer_.compiled_products(); }

  // Of one block, packed for `inner` and for `outer`.
  std::int64_t inner_bytes() const { return inner_.packed_bytes(); }
  std::int64_t outer_bytes() const { return outer_.packed_bytes(); }
  void pack(const HeadRows<const D>& from, std::int64_t index, std::byte* for_inner, std::byte* for_outer,
            std::span<std::byte> scratch) const {
    const void* b = from.row(index * grid_.block);
    std::int64_t stride = from.stride;
    const bool as_they_are = std::is_same_v<D, T> && inner_.packs_where_it_lies() && outer_.packs_where_it_lies() &&
                             stride % 2 == 0 && grid_.rows_of(index) == grid_.block;
    if (!as_they_are) {
      T* const copy = scratch_part<T>(scratch, copy_);
      copy_block(grid_, from, index, copy);
      b = copy;
      stride = grid_.shape.head_dim;
    }
    if (for_inner != nullptr) inner_.pack(b, stride, for_inner);
    if (for_outer != nullptr) outer_.pack(b, stride, for_outer);
  }

  // c [block, block] = a·bᵀ, with a and b [block, d].
  void inner(const T* a, const std::byte* b, float* c, Triangle triangle, std::span<std::byte> scratch) const {
    inner_.run(a, b, c, triangle, scratch);
  }
  // c [block, d] += a·b, with a [block, block] and b [block, d].
  void outer(const T* a, const std::byte* b, float* c, Triangle triangle, std::span<std::byte> scratch) const {
    outer_.run(a, b, c, triangle, scratch);
  }

 private:
  static constexpr DType dtype = std::is_same_v<T, float> ? DType::f32 : DType::bf16;

  const Grid& grid_;
  BlockProduct inner_;
  BlockProduct outer_;
  std::int64_t copy_;
};

template <typename D, typename T>
class ForwardKernel : public Kernel {
 public:
  explicit ForwardKernel(const KernelKey& key)
      : grid_(key),
        products_(grid_, layout_),
        k_(layout_.take(grid_.blocks * products_.inner_bytes())),
        v_(layout_.take(grid_.blocks * products_.outer_bytes())),
        q_(layout_.take(grid_.block_elements * element_bytes)),
        strip_(layout_.take(grid_.blocks * grid_.block * grid_.block * float_bytes)),
        terms_(layout_.take(grid_.block * grid_.block * element_bytes)),
        o_(layout_.take(grid_.block_elements * float_bytes)),
        largest_(layout_.take(grid_.block * 16 * float_bytes)),
        offsets_(layout_.take(grid_.block * float_bytes)),
        sums_(layout_.take(grid_.block * 16 * float_bytes)) {}

  std::int64_t tasks() const override { return grid_.sequences * grid_.shape.kv_heads * grid_.blocks; }
  std::int64_t scratch_bytes() const override { return layout_.bytes(); }
  std::int64_t compiled_products() const override { return products_.compiled_products(); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t heads = grid_.sequences * grid_.shape.kv_heads;
    const std::int64_t query_block = grid_.blocks - 1 - task / heads;
    const std::int64_t sequence = task % heads / grid_.shape.kv_heads;
    const std::int64_t kv_head = task % grid_.shape.kv_heads;
    const auto k = grid_.head<const D>(args.reads, Grid::Part::k, sequence, kv_head);
    const auto v = grid_.head<const D>(args.reads, Grid::Part::v, sequence, kv_head);
    for (std::int64_t j = 0; j <= query_block; ++j) {
      products_.pack(k, j, keys(args, j), nullptr, args.scratch);
      products_.pack(v, j, nullptr, values(args, j), args.scratch);
    }
    for (std::int64_t head = kv_head * grid_.group(); head < (kv_head + 1) * grid_.group(); ++head) {
      run_head(query_block, sequence, head, args);
    }
  }

 private:
  static constexpr std::int64_t element_bytes = sizeof(T);
  static constexpr std::int64_t float_bytes = sizeof(float);

  template <typename P>
  P* part(const KernelArgs& args, std::int64_t offset) const {
    return scratch_part<P>(args.scratch, offset);
  }
  std::byte* keys(const KernelArgs& args, std::int64_t block) const {
    return part<std::byte>(args, k_) + block * products_.inner_bytes();
  }
  std::byte* values(const KernelArgs& args, std::int64_t block) const {
    return part<std::byte>(args, v_) + block * products_.outer_bytes();
  }
  float* scores(const KernelArgs& args, std::int64_t key_block) const {
    return part<float>(args, strip_) + key_block * grid_.block * grid_.block;
  }

  void run_head(std::int64_t query_block, std::int64_t sequence, std::int64_t head, const KernelArgs& args) const {
    score_strip(query_block, sequence, head, args);
    weigh_values(query_block, args);
    write_rows(query_block, sequence, head, args);
  }

  // The scores, and by row their largest exponent.
  void score_strip(std::int64_t query_block, std::int64_t sequence, std::int64_t head, const KernelArgs& args) const {
    T* const q = part<T>(args, q_);
    float* const largest = part<float>(args, largest_);
    copy_block(grid_, grid_.head<const D>(args.reads, Grid::Part::q, sequence, head), query_block, q);
    std::fill(largest, largest + grid_.block * 16, -std::numeric_limits<float>::infinity());
    for (std::int64_t j = 0; j <= query_block; ++j) {
      const bool diagonal = j == query_block;
      const Triangle triangle = diagonal ? Triangle::c_up_to_row : Triangle::none;
      products_.inner(q, keys(args, j), scores(args, j), triangle, args.scratch);
      attention_kernels<T>().find_largest(grid_.softmax(diagonal), scores(args, j), largest);
    }
    float* const offsets = part<float>(args, offsets_);
    const auto largest_of = attention_kernels<T>().largest;
    for (std::int64_t r = 0; r < grid_.block; ++r) offsets[r] = largest_of(largest + r * 16) * grid_.factor;
  }

  void weigh_values(std::int64_t query_block, const KernelArgs& args) const {
    float* const o = part<float>(args, o_);
    float* const sums = part<float>(args, sums_);
    T* const terms = part<T>(args, terms_);
    std::fill(o, o + grid_.block_elements, 0.0F);
    std::fill(sums, sums + grid_.block * 16, 0.0F);
    for (std::int64_t j = 0; j <= query_block; ++j) {
      const bool diagonal = j == query_block;
      attention_kernels<T>().exponentials(grid_.softmax(diagonal), round_terms, scores(args, j),
                                          part<float>(args, offsets_), terms, sums);
      const Triangle triangle = diagonal ? Triangle::a_up_to_row : Triangle::none;
      products_.outer(terms, values(args, j), o, triangle, args.scratch);
    }
  }

  void write_rows(std::int64_t query_block, std::int64_t sequence, std::int64_t head, const KernelArgs& args) const {
    const auto o = grid_.output<D>(args.writes[0], sequence, head);
    const auto lse = grid_.scalar<float>(args.writes[1], sequence, head);
    const std::int64_t d = grid_.shape.head_dim;
    const float* const values = part<float>(args, o_);
    const float* const sums = part<float>(args, sums_);
    const float* const offsets = part<float>(args, offsets_);
    const auto total = attention_kernels<T>().total;
    const auto scaled = row_kernels<D>().scaled;
    for (std::int64_t r = 0; r < grid_.rows_of(query_block); ++r) {
      const float sum = total(sums + r * 16);
      const std::int64_t row = query_block * grid_.block + r;
      scaled(values + r * d, 1.0F / sum, d, o.row(row));
      *lse.row(row) = static_cast<float>((offsets[r] + std::log2(static_cast<double>(sum))) / log2_e);
    }
  }

  static constexpr bool round_terms = !std::is_same_v<D, T>;

  Grid grid_;
  ScratchLayout layout_;
  BlockProducts<D, T> products_;
  std::int64_t k_, v_, q_, strip_, terms_, o_, largest_, offsets_, sums_;
};

template <typename D, typename T>
class GradientKernel : public Kernel {
 public:
  explicit GradientKernel(const KernelKey& key)
      : grid_(key),
        products_(grid_, layout_),
        k_(layout_.take(grid_.blocks * grid_.block_elements * element_bytes)),
        v_(layout_.take(grid_.blocks * grid_.block_elements * element_bytes)),
        packed_k_(layout_.take(grid_.blocks * products_.outer_bytes())),
        dk_(layout_.take(grid_.blocks * grid_.block_elements * float_bytes)),
        dv_(layout_.take(grid_.blocks * grid_.block_elements * float_bytes)),
        inner_q_(layout_.take(products_.inner_bytes())),
        outer_q_(layout_.take(products_.outer_bytes())),
        inner_d_o_(layout_.take(products_.inner_bytes())),
        outer_d_o_(layout_.take(products_.outer_bytes())),
        dq_(layout_.take(grid_.block_elements * float_bytes)),
        scores_(layout_.take(grid_.block * grid_.block * float_bytes)),
        dp_(layout_.take(grid_.block * grid_.block * float_bytes)),
        p_(layout_.take(grid_.block * grid_.block * element_bytes)),
        ds_(layout_.take(grid_.block * grid_.block * element_bytes)),
        offsets_(layout_.take(grid_.block * float_bytes)),
        delta_(layout_.take(grid_.block * float_bytes)) {}

  std::int64_t tasks() const override { return grid_.sequences * grid_.shape.kv_heads; }
  std::int64_t scratch_bytes() const override { return layout_.bytes(); }
  std::int64_t compiled_products() const override { return products_.compiled_products(); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t sequence = task / grid_.shape.kv_heads;
    const std::int64_t kv_head = task % grid_.shape.kv_heads;
    const auto k = grid_.head<const D>(args.reads, Grid::Part::k, sequence, kv_head);
    const auto v = grid_.head<const D>(args.reads, Grid::Part::v, sequence, kv_head);
    const std::int64_t elements = grid_.blocks * grid_.block_elements;
    for (std::int64_t j = 0; j < grid_.blocks; ++j) {
      copy_block(grid_, k, j, part<T>(args, k_) + j * grid_.block_elements);
      copy_block(grid_, v, j, part<T>(args, v_) + j * grid_.block_elements);
      products_.pack(k, j, nullptr, packed_keys(args, j), args.scratch);
    }
    std::fill(part<float>(args, dk_), part<float>(args, dk_) + elements, 0.0F);
    std::fill(part<float>(args, dv_), part<float>(args, dv_) + elements, 0.0F);
    for (std::int64_t head = kv_head * grid_.group(); head < (kv_head + 1) * grid_.group(); ++head) {
      for (std::int64_t i = 0; i < grid_.blocks; ++i) run_query_block(i, sequence, head, args);
    }
    const auto dk = grid_.head<D>(args.writes, Grid::Part::k, sequence, kv_head);
    const auto dv = grid_.head<D>(args.writes, Grid::Part::v, sequence, kv_head);
    for (std::int64_t j = 0; j < grid_.blocks; ++j) {
      write_block(grid_, part<float>(args, dk_) + j * grid_.block_elements, j, dk);
      write_block(grid_, part<float>(args, dv_) + j * grid_.block_elements, j, dv);
    }
  }

 private:
  static constexpr std::int64_t element_bytes = sizeof(T);
  static constexpr std::int64_t float_bytes = sizeof(float);
  static constexpr bool round_terms = !std::is_same_v<D, T>;

  template <typename P>
  P* part(const KernelArgs& args, std::int64_t offset) const {
    return scratch_part<P>(args.scratch, offset);
  }
  std::byte* packed_keys(const KernelArgs& args, std::int64_t block) const {
    return part<std::byte>(args, packed_k_) + block * products_.outer_bytes();
  }

  void run_query_block(std::int64_t i, std::int64_t sequence, std::int64_t head, const KernelArgs& args) const {
    pack_query_block(i, sequence, head, args);
    float* const dq = part<float>(args, dq_);
    std::fill(dq, dq + grid_.block_elements, 0.0F);
    for (std::int64_t j = 0; j <= i; ++j) run_block(i, j, args);
    write_block(grid_, dq, i, grid_.head<D>(args.writes, Grid::Part::q, sequence, head));
  }

  // q, do, lse to base 2 and delta = do·o of one block. Rows after the last token get lse = infinity, hence probability
  // 0.
  void pack_query_block(std::int64_t i, std::int64_t sequence, std::int64_t head, const KernelArgs& args) const {
    const std::size_t inputs = grid_.packed ? 1 : 3;
    const auto q = grid_.head<const D>(args.reads, Grid::Part::q, sequence, head);
    const auto o = grid_.output<const D>(args.reads[inputs], sequence, head);
    const auto lse = grid_.scalar<const float>(args.reads[inputs + 1], sequence, head);
    const auto d_o = grid_.output<const D>(args.reads[inputs + 2], sequence, head);
    products_.pack(q, i, part<std::byte>(args, inner_q_), part<std::byte>(args, outer_q_), args.scratch);
    products_.pack(d_o, i, part<std::byte>(args, inner_d_o_), part<std::byte>(args, outer_d_o_), args.scratch);
    float* const offsets = part<float>(args, offsets_);
    float* const block_delta = part<float>(args, delta_);
    const auto dot = row_kernels<D>().dot;
    for (std::int64_t r = 0; r < grid_.block; ++r) {
      const std::int64_t row = i * grid_.block + r;
      const bool token = r < grid_.rows_of(i);
      offsets[r] = token ? static_cast<float>(*lse.row(row) * log2_e) : std::numeric_limits<float>::infinity();
      block_delta[r] = token ? dot(d_o.row(row), o.row(row), grid_.shape.head_dim) : 0.0F;
    }
  }

  // Scores and their gradients are made transposed, keys by queries, so that only one matrix has to be turned.
  void run_block(std::int64_t i, std::int64_t j, const KernelArgs& args) const {
    const std::int64_t at = j * grid_.block_elements;
    const std::span<std::byte> scratch = args.scratch;
    T* const p = part<T>(args, p_);
    T* const ds = part<T>(args, ds_);
    const bool diagonal = i == j;
    const Triangle of_scores = diagonal ? Triangle::c_from_row : Triangle::none;
    const Triangle of_keys = diagonal ? Triangle::a_from_row : Triangle::none;
    const Triangle of_queries = diagonal ? Triangle::a_up_to_row : Triangle::none;
    products_.inner(part<T>(args, k_) + at, part<std::byte>(args, inner_q_), part<float>(args, scores_), of_scores,
                    scratch);
    products_.inner(part<T>(args, v_) + at, part<std::byte>(args, inner_d_o_), part<float>(args, dp_), of_scores,
                    scratch);
    attention_kernels<T>().gradient(grid_.softmax(diagonal), round_terms, part<float>(args, scores_),
                                    part<float>(args, dp_), part<float>(args, offsets_), part<float>(args, delta_), p,
                                    ds);
    products_.outer(p, part<std::byte>(args, outer_d_o_), part<float>(args, dv_) + at, of_keys, scratch);
    products_.outer(ds, part<std::byte>(args, outer_q_), part<float>(args, dk_) + at, of_keys, scratch);
    transpose(ds, p);
    products_.outer(p, packed_keys(args, j), part<float>(args, dq_), of_queries, scratch);
  }

  void transpose(const T* from, T* to) const {
    const std::int64_t n = grid_.block;
    if constexpr (std::is_same_v<T, float>) {
      pack_kernels().transpose32(reinterpret_cast<const std::uint32_t*>(from), n, n, n,
                                 reinterpret_cast<std::uint32_t*>(to), n);
    } else {
      pack_kernels().transpose16(from, n, n, n, to, n);
    }
  }

  Grid grid_;
  ScratchLayout layout_;
  BlockProducts<D, T> products_;
  std::int64_t k_, v_, packed_k_, dk_, dv_, inner_q_, outer_q_, inner_d_o_, outer_d_o_, dq_, scores_, dp_, p_, ds_;
  std::int64_t offsets_, delta_;
};

template <template <typename, typename> typename K>
std::unique_ptr<Kernel> make(const KernelKey& key) {
  if (key.reads[0].dtype == DType::f32) return std::make_unique<K<float, float>>(key);
  if (matmul_has_bf16()) return std::make_unique<K<bf16_t, bf16_t>>(key);
  return std::make_unique<K<bf16_t, float>>(key);
}

}  // namespace

std::unique_ptr<Kernel> make_attention_cpu(const KernelKey& key) { return make<ForwardKernel>(key); }
std::unique_ptr<Kernel> make_attention_dx_cpu(const KernelKey& key) { return make<GradientKernel>(key); }

}  // namespace spillway
