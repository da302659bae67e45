#include "ops/float_types.h"
#include "ops/swiglu/swiglu.h"

namespace spillway {
namespace {

std::vector<ValueType> infer_swiglu(const Attrs&, std::span<const ValueType> reads) {
  check_float_value(reads[0], "swiglu gate");
  check_same_type(reads[0], reads[1], "swiglu gate and up");
  return {reads[0]};
}

std::vector<ValueType> infer_swiglu_dx(const Attrs&, std::span<const ValueType> reads) {
  check_float_value(reads[0], "swiglu_dx gate");
  check_same_type(reads[0], reads[1], "swiglu_dx gate and up");
  check_same_type(reads[0], reads[2], "swiglu_dx gate and dy");
  return {reads[0], reads[0]};
}

Cost swiglu_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  cost.flops = 35 * static_cast<double>(writes[0].elements());
  return cost;
}

void swiglu_gradient(Gradient& gradient) {
  const Operand dy = gradient.of_write(0);
  if (!dy.exists()) return;
  const std::vector<Operand> made =
      gradient.recorder().record(swiglu_dx_spec, {}, {gradient.read(0), gradient.read(1), dy});
  if (gradient.wants(0)) gradient.add(0, made[0]);
  if (gradient.wants(1)) gradient.add(1, made[1]);
}

}  // namespace

const OpSpec swiglu_spec = {.name = "swiglu",
                            .infer = infer_swiglu,
                            .cost = swiglu_cost,
                            .gradient = swiglu_gradient,
                            .shares = {{.write = 0, .read = 0}, {.write = 0, .read = 1}}};
const OpSpec swiglu_dx_spec = {
    .name = "swiglu_dx",
    .infer = infer_swiglu_dx,
    .cost = swiglu_cost,
    .gradient = nullptr,
    .shares = {{.write = 0, .read = 0}, {.write = 1, .read = 1}, {.write = 0, .read = 2}, {.write = 1, .read = 2}}};

Operand swiglu(Recorder& recorder, Operand gate, Operand up) { return recorder.record1(swiglu_spec, {}, {gate, up}); }

}  // namespace spillway
