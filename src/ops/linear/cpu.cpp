#include "ops/linear/cpu.h"

#include <cstring>

#include "ops/linear/linear.h"
#include "ops/matmul/pack.h"
#include "ops/matmul/panel_matmul.h"

namespace spillway {
namespace {

bool present(const ValueType& type) { return type.rows > 0; }

// The part of a dense matrix that starts at `row`.
const std::byte* row_of(const std::byte* base, const ValueType& type, std::int64_t row) {
  return base + row * type.cols * size_of(type.dtype);
}
std::byte* row_of(std::byte* base, const ValueType& type, std::int64_t row) {
  return base + row * type.cols * size_of(type.dtype);
}

// A gradient that adds to an accumulator elsewhere starts from a copy of its panel.
void start_from_accumulator(const PanelMatmul& product, std::int64_t panel, const KernelArgs& args, std::byte* c,
                            const ValueType& type) {
  if (!product.shape().accumulate || args.reads[2] == args.writes[0]) return;
  const std::byte* const from = row_of(args.reads[2], type, panel * product.panel_rows());
  std::memcpy(c, from, static_cast<std::size_t>(product.rows_of(panel) * type.cols * size_of(type.dtype)));
}

// y = x·W + b, and dx = dy·Wᵀ: panels of rows of x, or dy.
class RowsKernel : public Kernel {
 public:
  RowsKernel(const KernelKey& key, const MatmulShape& shape, std::int64_t row_begin)
      : a_type_(key.reads[0]), c_type_(key.writes[0]), row_begin_(row_begin), product_(shape, layout_) {}

  std::int64_t tasks() const override { return product_.panels(); }
  std::int64_t scratch_bytes() const override { return layout_.bytes(); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t row = task * product_.panel_rows();
    std::byte* const c = row_of(args.writes[0], c_type_, row);
    start_from_accumulator(product_, task, args, c, c_type_);
    product_.run(task,
                 {.a = row_of(args.reads[0], a_type_, row_begin_ + row),
                  .b = args.reads[1],
                  .bias = product_.shape().has_bias ? args.reads[2] : nullptr,
                  .c = c},
                 args.scratch);
  }

 private:
  ValueType a_type_;
  ValueType c_type_;
  std::int64_t row_begin_ = 0;
  ScratchLayout layout_;
  PanelMatmul product_;
};

// dW = dyᵀ·x for W [out, in], xᵀ·dy for W [in, out]: panels of rows of dW. The left factor's columns of this panel are
// transposed to a dense matrix first, since strided products use an implementation that allocates.
class WeightGradientKernel : public Kernel {
 public:
  explicit WeightGradientKernel(const KernelKey& key)
      : x_type_(key.reads[0]),
        dy_type_(key.reads[1]),
        c_type_(key.writes[0]),
        weight_out_in_(linear_weight_out_in(key.attrs)),
        row_begin_(linear_rows(key.attrs, key.reads[0]).begin),
        left_(layout_.take(std::min(c_type_.rows, matmul_panel_rows(c_type_.rows)) * dy_type_.rows *
                           size_of(dy_type_.dtype))),
        product_({.m = c_type_.rows,
                  .n = c_type_.cols,
                  .k = dy_type_.rows,
                  .in = dy_type_.dtype,
                  .out = DType::f32,
                  .accumulate = present(key.reads[2])},
                 layout_) {}

  std::int64_t tasks() const override { return product_.panels(); }
  std::int64_t scratch_bytes() const override { return layout_.bytes(); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::byte* const x = row_of(args.reads[0], x_type_, row_begin_);
    const std::byte* const dy = args.reads[1];
    std::byte* const c = row_of(args.writes[0], c_type_, task * product_.panel_rows());
    start_from_accumulator(product_, task, args, c, c_type_);
    void* const left = scratch_part(args.scratch, left_);
    transpose_columns(weight_out_in_ ? dy : x, task, left);
    product_.run(task, {.a = left, .b = weight_out_in_ ? x : dy, .bias = nullptr, .c = c}, args.scratch);
  }

 private:
  void transpose_columns(const std::byte* from, std::int64_t panel, void* to) const {
    const std::int64_t tokens = dy_type_.rows;
    const std::int64_t first = panel * product_.panel_rows();
    const std::int64_t columns = product_.rows_of(panel);
    if (dy_type_.dtype == DType::bf16) {
      pack_kernels().transpose16(reinterpret_cast<const std::uint16_t*>(from) + first, c_type_.rows, tokens, columns,
                                 static_cast<std::uint16_t*>(to), tokens);
    } else {
      pack_kernels().transpose32(reinterpret_cast<const std::uint32_t*>(from) + first, c_type_.rows, tokens, columns,
                                 static_cast<std::uint32_t*>(to), tokens);
    }
  }

  ValueType x_type_;
  ValueType dy_type_;
  ValueType c_type_;
  bool weight_out_in_ = true;
  std::int64_t row_begin_ = 0;
  ScratchLayout layout_;
  std::int64_t left_ = 0;
  PanelMatmul product_;
};

}  // namespace

std::unique_ptr<Kernel> make_linear_cpu(const KernelKey& key) {
  const MatmulShape shape{.m = key.writes[0].rows,
                          .n = key.writes[0].cols,
                          .k = key.reads[0].cols,
                          .in = key.reads[0].dtype,
                          .out = key.writes[0].dtype,
                          .transposed_b = linear_weight_out_in(key.attrs),
                          .has_bias = present(key.reads[2]),
                          .bias = key.reads[2].dtype};
  return std::make_unique<RowsKernel>(key, shape, linear_rows(key.attrs, key.reads[0]).begin);
}

std::unique_ptr<Kernel> make_linear_dx_cpu(const KernelKey& key) {
  const MatmulShape shape{.m = key.writes[0].rows,
                          .n = key.writes[0].cols,
                          .k = key.reads[0].cols,
                          .in = key.reads[0].dtype,
                          .out = key.writes[0].dtype,
                          .transposed_b = !linear_weight_out_in(key.attrs),
                          .accumulate = present(key.reads[2])};
  return std::make_unique<RowsKernel>(key, shape, 0);
}

std::unique_ptr<Kernel> make_linear_dw_cpu(const KernelKey& key) { return std::make_unique<WeightGradientKernel>(key); }

}  // namespace spillway
