// Linear layers, by cuBLASLt, and attention.
#include <cmath>
#include <memory>

#include "cuda/attention_tiles.h"
#include "cuda/kernels.h"
#include "ops/attention/attention.h"
#include "ops/linear/linear.h"

namespace spillway::cuda {
namespace {

bool present(const ValueType& type) { return type.rows > 0; }

// Of an address that lies some rows into a value.
std::int64_t row_alignment_bytes(const ValueType& type) {
  const std::int64_t row_bytes = type.cols * size_of(type.dtype);
  std::int64_t alignment = 16;
  while (row_bytes % alignment != 0) alignment /= 2;
  return alignment;
}

// Which operand of the op each factor is.
struct Factors {
  std::size_t a = 0;
  std::size_t b = 1;
  std::int64_t a_skip_bytes = 0;
  std::int64_t b_skip_bytes = 0;
};

std::unique_ptr<Kernel> make_product(const KernelKey& key, Device& device, const ProductShape& shape,
                                     const Factors& factors) {
  const auto product = std::make_shared<const Product>(device.products(), shape);
  return started(key, [&device, product, factors, has_bias = shape.has_bias,
                       accumulate = shape.accumulate](const KernelArgs& args) {
    product->start(device.compute(), {.a = args.reads[factors.a] + factors.a_skip_bytes,
                                      .b = args.reads[factors.b] + factors.b_skip_bytes,
                                      .bias = has_bias ? args.reads[2] : nullptr,
                                      .sum = accumulate ? args.reads[2] : nullptr,
                                      .c = args.writes[0],
                                      .workspace = device.scratch()});
  });
}

// The sizes of attention, and where the heads of q, k, v, o begin in the operands.
struct AttentionPlaces {
  explicit AttentionPlaces(const KernelKey& key)
      : shape(attention_shape(key.attrs)),
        packed(attention_packed(key.attrs)),
        type(float_of(key.reads[0].dtype)),
        element_bytes(size_of(key.reads[0].dtype)),
        sizes{.sequences = key.reads[0].rows / shape.sequence_length,
              .sequence_length = shape.sequence_length,
              .heads = shape.heads,
              .kv_heads = shape.kv_heads,
              .head_dim = shape.head_dim,
              .scale = static_cast<float>(attention_scale(key.attrs))} {}

  std::int64_t stride(std::int64_t heads) const {
    return (packed ? shape.heads + 2 * shape.kv_heads : heads) * shape.head_dim;
  }
  // Part 0, 1, 2: q, k, v.
  template <typename Where, typename Byte>
  Where part(std::span<Byte* const> operands, std::size_t index) const {
    const std::int64_t before = index == 0 ? 0 : shape.heads + (index == 2 ? shape.kv_heads : 0);
    const std::int64_t skip_bytes = packed ? before * shape.head_dim * element_bytes : 0;
    return {operands[packed ? 0 : index] + skip_bytes, stride(index == 0 ? shape.heads : shape.kv_heads)};
  }

  AttentionShape shape;
  bool packed = false;
  Float type = Float::f32;
  std::int64_t element_bytes = 0;
  AttentionSizes sizes;
};

}  // namespace

std::unique_ptr<Kernel> make_linear(const KernelKey& key, Device& device) {
  const ValueType& x = key.reads[0];
  const bool chosen_rows = key.attrs.integer_or("row_count", -1) >= 0;
  const ProductShape shape{.m = key.writes[0].rows,
                           .n = key.writes[0].cols,
                           .k = x.cols,
                           .in = x.dtype,
                           .out = key.writes[0].dtype,
                           .transposed_b = linear_weight_out_in(key.attrs),
                           .has_bias = present(key.reads[2]),
                           .bias = key.reads[2].dtype,
                           .a_alignment_bytes = chosen_rows ? row_alignment_bytes(x) : 16};
  const std::int64_t skip_bytes = linear_rows(key.attrs, x).begin * x.cols * size_of(x.dtype);
  return make_product(key, device, shape, {.a = 0, .b = 1, .a_skip_bytes = skip_bytes});
}

std::unique_ptr<Kernel> make_linear_dx(const KernelKey& key, Device& device) {
  const ProductShape shape{.m = key.writes[0].rows,
                           .n = key.writes[0].cols,
                           .k = key.reads[0].cols,
                           .in = key.reads[0].dtype,
                           .out = key.writes[0].dtype,
                           .transposed_b = !linear_weight_out_in(key.attrs),
                           .accumulate = present(key.reads[2])};
  return make_product(key, device, shape, {});
}

// dW = dyᵀ·x for W [out, in], xᵀ·dy for W [in, out].
std::unique_ptr<Kernel> make_linear_dw(const KernelKey& key, Device& device) {
  const ValueType& x = key.reads[0];
  const bool out_in = linear_weight_out_in(key.attrs);
  const bool chosen_rows = key.attrs.integer_or("row_count", -1) >= 0;
  const std::int64_t x_alignment = chosen_rows ? row_alignment_bytes(x) : 16;
  const std::int64_t skip_bytes = linear_rows(key.attrs, x).begin * x.cols * size_of(x.dtype);
  const ProductShape shape{.m = key.writes[0].rows,
                           .n = key.writes[0].cols,
                           .k = key.reads[1].rows,
                           .in = x.dtype,
                           .out = key.writes[0].dtype,
                           .transposed_a = true,
                           .accumulate = present(key.reads[2]),
                           .a_alignment_bytes = out_in ? 16 : x_alignment,
                           .b_alignment_bytes = out_in ? x_alignment : 16};
  if (out_in) return make_product(key, device, shape, {.a = 1, .b = 0, .b_skip_bytes = skip_bytes});
  return make_product(key, device, shape, {.a = 0, .b = 1, .a_skip_bytes = skip_bytes});
}

std::unique_ptr<Kernel> make_attention(const KernelKey& key, Device& device) {
  const AttentionPlaces at(key);
  check_attention_heads(at.shape.head_dim);
  return started(key, [&device, at](const KernelArgs& args) {
    attention(device.compute(), at.type,
              {.sizes = at.sizes,
               .q = at.part<Heads>(args.reads, 0),
               .k = at.part<Heads>(args.reads, 1),
               .v = at.part<Heads>(args.reads, 2),
               .o = {args.writes[0], at.shape.heads * at.shape.head_dim},
               .lse = args.write<float>(1)});
  });
}

std::unique_ptr<Kernel> make_attention_dx(const KernelKey& key, Device& device) {
  const AttentionPlaces at(key);
  check_attention_heads(at.shape.head_dim);
  device.need_scratch(key.reads[0].rows * at.shape.heads * static_cast<std::int64_t>(sizeof(float)));
  return started(key, [&device, at](const KernelArgs& args) {
    const std::size_t inputs = at.packed ? 1 : 3;
    const std::int64_t o_stride = at.shape.heads * at.shape.head_dim;
    attention_dx(device.compute(), at.type,
                 {.sizes = at.sizes,
                  .q = at.part<Heads>(args.reads, 0),
                  .k = at.part<Heads>(args.reads, 1),
                  .v = at.part<Heads>(args.reads, 2),
                  .o = {args.reads[inputs], o_stride},
                  .d_o = {args.reads[inputs + 2], o_stride},
                  .lse = args.read<float>(static_cast<int>(inputs) + 1),
                  .delta = reinterpret_cast<float*>(device.scratch()),
                  .dq = at.part<HeadsOut>(args.writes, 0),
                  .dk = at.part<HeadsOut>(args.writes, 1),
                  .dv = at.part<HeadsOut>(args.writes, 2)});
  });
}

std::unique_ptr<Kernel> make_kv_attention(const KernelKey& key, Device& device) {
  const std::int64_t head_dim = key.attrs.integer("head_dim");
  check_attention_heads(head_dim);
  return started(
      key, [&device, head_dim, type = float_of(key.reads[0].dtype), rows = key.reads[0].rows,
            heads = key.attrs.integer("heads"), kv_heads = key.attrs.integer("kv_heads")](const KernelArgs& args) {
        kv_attention(device.compute(), type,
                     {.q = args.reads[0],
                      .keys = args.reads[1],
                      .values = args.reads[2],
                      .positions = args.read<std::int32_t>(3),
                      .o = args.writes[0],
                      .rows = rows,
                      .heads = heads,
                      .kv_heads = kv_heads,
                      .head_dim = head_dim,
                      .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))});
      });
}

}  // namespace spillway::cuda
