#include "ops/float_types.h"
#include "ops/gelu/gelu.h"

namespace spillway {
namespace {

std::vector<ValueType> infer_gelu(const Attrs&, std::span<const ValueType> reads) {
  check_float_value(reads[0], "gelu x");
  return {reads[0]};
}

std::vector<ValueType> infer_gelu_dx(const Attrs&, std::span<const ValueType> reads) {
  check_float_value(reads[0], "gelu_dx x");
  check_same_type(reads[0], reads[1], "gelu_dx x and dy");
  return {reads[0]};
}

Cost gelu_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  cost.flops = 40 * static_cast<double>(writes[0].elements());
  return cost;
}

void gelu_gradient(Gradient& gradient) {
  const Operand dy = gradient.of_write(0);
  if (!dy.exists() || !gradient.wants(0)) return;
  gradient.add(0, gradient.recorder().record1(gelu_dx_spec, {}, {gradient.read(0), dy}));
}

}  // namespace

const OpSpec gelu_spec = {.name = "gelu",
                          .infer = infer_gelu,
                          .cost = gelu_cost,
                          .gradient = gelu_gradient,
                          .shares = {{.write = 0, .read = 0}}};
const OpSpec gelu_dx_spec = {.name = "gelu_dx",
                             .infer = infer_gelu_dx,
                             .cost = gelu_cost,
                             .gradient = nullptr,
                             .shares = {{.write = 0, .read = 1}, {.write = 0, .read = 0}}};

Operand gelu(Recorder& recorder, Operand x) { return recorder.record1(gelu_spec, {}, {x}); }

}  // namespace spillway
