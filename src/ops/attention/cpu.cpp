#include "ops/attention/cpu.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/attention/blocks.h"

namespace spillway {
namespace attention_blocks {
namespace {

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

  // The scores, and by row the largest.
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
    for (std::int64_t r = 0; r < grid_.block; ++r) offsets[r] = largest_of(largest + r * 16);
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
      *lse.row(row) =
          static_cast<float>(static_cast<double>(offsets[r]) * grid_.scale + std::log(static_cast<double>(sum)));
    }
  }

  static constexpr bool round_terms = !std::is_same_v<D, T>;

  Grid grid_;
  ScratchLayout layout_;
  BlockProducts<D, T> products_;
  std::int64_t k_, v_, q_, strip_, terms_, o_, largest_, offsets_, sums_;
};

}  // namespace
}  // namespace attention_blocks

std::unique_ptr<Kernel> make_attention_cpu(const KernelKey& key) {
  return attention_blocks::make_for_dtype<attention_blocks::ForwardKernel>(key);
}

}  // namespace spillway
