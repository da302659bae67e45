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
// y = x·W + b, and dx = dy·Wᵀ.
class RowsKernel : public Kernel {
 public:
  RowsKernel(const KernelKey& key, const MatmulShape& shape, std::int64_t row_begin)
      : a_type_(key.reads[0]), row_begin_(row_begin), product_(shape, layout_) {}

  std::int64_t tasks() const override { return product_.tasks(); }
  std::int64_t scratch_bytes() const override { return layout_.bytes(); }
  std::int64_t compiled_products() const override { return product_.compiled_products(); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const bool has_bias = product_.shape().has_bias;
    product_.run(task,
                 {.a = row_of(args.reads[0], a_type_, row_begin_ + product_.part(task).row),
                  .b = args.reads[1],
                  .bias = has_bias ? args.reads[2] : nullptr,
                  .sum = has_bias ? nullptr : args.read<float>(2),
                  .c = args.writes[0]},
                 args.scratch);
  }

 private:
  ValueType a_type_;
  std::int64_t row_begin_ = 0;
  ScratchLayout layout_;
  PanelMatmul product_;
};

// dW = dyᵀ·x for W [out, in], xᵀ·dy for W [in, out]. The left factor's columns of a part's rows are transposed to a
// dense matrix first, since products read rows, and serve all parts of these rows that a thread comes to.
class WeightGradientKernel : public Kernel {
 public:
  explicit WeightGradientKernel(const KernelKey& key)
      : x_type_(key.reads[0]),
        dy_type_(key.reads[1]),
        c_type_(key.writes[0]),
        weight_out_in_(linear_weight_out_in(key.attrs)),
        row_begin_(linear_rows(key.attrs, key.reads[0]).begin),
        product_({.m = c_type_.rows,
                  .n = c_type_.cols,
                  .k = dy_type_.rows,
                  .in = dy_type_.dtype,
                  .out = c_type_.dtype,
                  .accumulate = present(key.reads[2])},
                 layout_),
        left_(layout_.take(product_.most_part_rows() * product_.copied_row_stride() * size_of(dy_type_.dtype))) {}

  std::int64_t tasks() const override { return product_.tasks(); }
  std::int64_t scratch_bytes() const override { return layout_.bytes(); }
  std::int64_t compiled_products() const override { return product_.compiled_products(); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::byte* const x = row_of(args.reads[0], x_type_, row_begin_);
    const std::byte* const dy = args.reads[1];
    void* const left = scratch_part(args.scratch, left_);
    const MatmulPart part = product_.part(task);
    const bool is_there = args.last_task >= 0 && product_.part(args.last_task).row == part.row;
    if (!is_there) transpose_columns(weight_out_in_ ? dy : x, part, left);
    product_.run(task,
                 {.a = left,
                  .a_stride = product_.copied_row_stride(),
                  .b = weight_out_in_ ? x : dy,
                  .bias = nullptr,
                  .sum = args.read<float>(2),
                  .c = args.writes[0]},
                 args.scratch);
  }

 private:
  void transpose_columns(const std::byte* from, const MatmulPart& part, void* to) const {
    const std::int64_t tokens = dy_type_.rows;
    const std::int64_t first = part.row;
    const std::int64_t columns = part.rows;
    const std::int64_t stride = product_.copied_row_stride();
    if (dy_type_.dtype == DType::bf16) {
      pack_kernels().transpose16(reinterpret_cast<const std::uint16_t*>(from) + first, c_type_.rows, tokens, columns,
                                 static_cast<std::uint16_t*>(to), stride);
    } else {
      pack_kernels().transpose32(reinterpret_cast<const std::uint32_t*>(from) + first, c_type_.rows, tokens, columns,
                                 static_cast<std::uint32_t*>(to), stride);
    }
  }

  ValueType x_type_;
  ValueType dy_type_;
  ValueType c_type_;
  bool weight_out_in_ = true;
  std::int64_t row_begin_ = 0;
  ScratchLayout layout_;
  PanelMatmul product_;
  std::int64_t left_ = 0;
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
