#include "base/bytes.h"
#include "ops/float_types.h"
#include "ops/layernorm/layernorm.h"
#include "ops/reduce/reduce.h"

namespace spillway {
namespace {

std::vector<ValueType> infer_layernorm(const Attrs&, std::span<const ValueType> reads) {
  const ValueType& x = reads[0];
  check_float_value(x, "layernorm x");
  check_same_type(reads[1], {x.dtype, x.cols, 1}, "layernorm weight");
  check_same_type(reads[2], {x.dtype, x.cols, 1}, "layernorm bias");
  return {x, {DType::f32, x.rows, 1}, {DType::f32, x.rows, 1}};
}

std::vector<ValueType> infer_layernorm_dx(const Attrs&, std::span<const ValueType> reads) {
  const ValueType& x = reads[0];
  check_float_value(x, "layernorm_dx x");
  check_same_type(reads[1], {x.dtype, x.cols, 1}, "layernorm_dx weight");
  check_same_type(reads[2], {DType::f32, x.rows, 1}, "layernorm_dx mean");
  check_same_type(reads[3], {DType::f32, x.rows, 1}, "layernorm_dx rstd");
  check_same_type(reads[4], x, "layernorm_dx dy");
  const ValueType partials{DType::f32, divide_up(x.rows, partial_block_rows), x.cols};
  return {x, partials, partials};
}

Cost layernorm_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  cost.flops = 8 * static_cast<double>(reads[0].elements());
  return cost;
}

Cost layernorm_dx_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  cost.flops = 14 * static_cast<double>(reads[0].elements());
  return cost;
}

void layernorm_gradient(Gradient& gradient) {
  const Operand dy = gradient.of_write(0);
  if (!dy.exists()) return;
  Recorder& recorder = gradient.recorder();
  const std::vector<Operand> made = recorder.record(
      layernorm_dx_spec, {}, {gradient.read(0), gradient.read(1), gradient.write(1), gradient.write(2), dy});
  if (gradient.wants(0)) gradient.add(0, made[0]);
  if (gradient.wants(1)) gradient.set_accumulator(1, add_partials(recorder, made[1], gradient.accumulator(1)));
  if (gradient.wants(2)) gradient.set_accumulator(2, add_partials(recorder, made[2], gradient.accumulator(2)));
}

}  // namespace

const OpSpec layernorm_spec = {.name = "layernorm",
                               .infer = infer_layernorm,
                               .cost = layernorm_cost,
                               .gradient = layernorm_gradient,
                               .shares = {{.write = 0, .read = 0}}};
const OpSpec layernorm_dx_spec = {.name = "layernorm_dx",
                                  .infer = infer_layernorm_dx,
                                  .cost = layernorm_dx_cost,
                                  .gradient = nullptr,
                                  .shares = {{.write = 0, .read = 4}, {.write = 0, .read = 0}}};

Operand layernorm(Recorder& recorder, Operand x, Operand w, Operand b, double epsilon) {
  return recorder.record(layernorm_spec, {{"epsilon", epsilon}}, {x, w, b})[0];
}

}  // namespace spillway
