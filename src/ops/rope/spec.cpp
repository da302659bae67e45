#include "ops/float_types.h"
#include "ops/rope/rope.h"

namespace spillway {
namespace {

std::vector<ValueType> infer_rope(const Attrs& attrs, std::span<const ValueType> reads) {
  const ValueType& x = reads[0];
  const std::int64_t head_dim = attrs.integer("head_dim");
  check_float_value(x, "rope x");
  SPILLWAY_CHECK(head_dim > 0 && head_dim % 2 == 0 && x.cols % head_dim == 0, "rope of rows of {} in heads of {}",
                 x.cols, head_dim);
  check_same_type(reads[1], {DType::i32, x.rows, 1}, "rope positions");
  check_same_type(reads[2], {DType::f32, head_dim / 2, 1}, "rope inverse frequencies");
  return {x};
}

Cost rope_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  const double sines = 40 * static_cast<double>(reads[0].rows * reads[2].rows);
  cost.flops = 3 * static_cast<double>(reads[0].elements()) + sines;
  return cost;
}

void rope_gradient(Gradient& gradient) {
  const Operand dy = gradient.of_write(0);
  if (!dy.exists() || !gradient.wants(0)) return;
  const std::int64_t inverse = 1 - gradient.attrs().integer("inverse");
  const Attrs attrs{{"head_dim", gradient.attrs().integer("head_dim")}, {"inverse", inverse}};
  gradient.add(0, gradient.recorder().record1(rope_spec, attrs, {dy, gradient.read(1), gradient.read(2)}));
}

}  // namespace

const OpSpec rope_spec = {.name = "rope",
                          .infer = infer_rope,
                          .cost = rope_cost,
                          .gradient = rope_gradient,
                          .shares = {{.write = 0, .read = 0}}};

Operand rope(Recorder& recorder, Operand x, Operand positions, Operand inverse_frequencies, std::int64_t head_dim) {
  return recorder.record1(rope_spec, {{"head_dim", head_dim}, {"inverse", std::int64_t{0}}},
                          {x, positions, inverse_frequencies});
}

}  // namespace spillway
