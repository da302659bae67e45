#include "ops/add/add.h"
#include "ops/float_types.h"

namespace spillway {
namespace {

std::vector<ValueType> infer_add(const Attrs&, std::span<const ValueType> reads) {
  check_float_value(reads[0], "add a");
  check_same_type(reads[0], reads[1], "add a and b");
  return {reads[0]};
}

Cost add_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  cost.flops = static_cast<double>(writes[0].elements());
  return cost;
}

void add_gradient(Gradient& gradient) {
  const Operand dy = gradient.of_write(0);
  if (!dy.exists()) return;
  for (const int i : {0, 1}) {
    if (gradient.wants(i)) gradient.add(i, dy);
  }
}

}  // namespace

const OpSpec add_spec = {.name = "add",
                         .infer = infer_add,
                         .cost = add_cost,
                         .gradient = add_gradient,
                         .shares = {{.write = 0, .read = 0}, {.write = 0, .read = 1}}};

Operand add(Recorder& recorder, Operand a, Operand b) { return recorder.record1(add_spec, {}, {a, b}); }

}  // namespace spillway
