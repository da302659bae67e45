#include <algorithm>
#include <limits>
#include <type_traits>

#include "ops/attention/blocks.h"
#include "ops/attention/cpu.h"

namespace spillway {
namespace attention_blocks {
namespace {

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

  // q, do, lse in units of scores and delta = do·o of one block. Rows after the last token get lse = infinity, hence
  // probability 0.
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
      offsets[r] = token ? *lse.row(row) / grid_.scale : std::numeric_limits<float>::infinity();
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

}  // namespace
}  // namespace attention_blocks

std::unique_ptr<Kernel> make_attention_dx_cpu(const KernelKey& key) {
  return attention_blocks::make_for_dtype<attention_blocks::GradientKernel>(key);
}

}  // namespace spillway
