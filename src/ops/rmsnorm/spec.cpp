#include "base/bytes.h"
#include "ops/float_types.h"
#include "ops/reduce/reduce.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace spillway {
namespace {

std::int64_t groups_of(const ValueType& x, const ValueType& w) {
  check_float_value(x, "rmsnorm x");
  SPILLWAY_CHECK(w.dtype == x.dtype && w.cols == 1 && w.rows > 0, "rmsnorm weight is {} {} x {}", name_of(w.dtype),
                 w.rows, w.cols);
  SPILLWAY_CHECK(x.cols % w.rows == 0, "rmsnorm of rows of {} in groups of {}", x.cols, w.rows);
  return x.elements() / w.rows;
}

std::vector<ValueType> infer_rmsnorm(const Attrs&, std::span<const ValueType> reads) {
  return {reads[0], {DType::f32, groups_of(reads[0], reads[1]), 1}};
}

std::vector<ValueType> infer_rmsnorm_dx(const Attrs&, std::span<const ValueType> reads) {
  const std::int64_t groups = groups_of(reads[0], reads[1]);
  check_same_type(reads[2], {DType::f32, groups, 1}, "rmsnorm_dx rstd");
  check_same_type(reads[3], reads[0], "rmsnorm_dx dy");
  return {reads[0], {DType::f32, divide_up(groups, partial_block_rows), reads[1].rows}};
}

Cost rmsnorm_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  cost.flops = 4 * static_cast<double>(reads[0].elements());
  return cost;
}

Cost rmsnorm_dx_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  cost.flops = 10 * static_cast<double>(reads[0].elements());
  return cost;
}

void rmsnorm_gradient(Gradient& gradient) {
  const Operand dy = gradient.of_write(0);
  if (!dy.exists()) return;
  Recorder& recorder = gradient.recorder();
  const std::vector<Operand> made =
      recorder.record(rmsnorm_dx_spec, {}, {gradient.read(0), gradient.read(1), gradient.write(1), dy});
  if (gradient.wants(0)) gradient.add(0, made[0]);
  if (gradient.wants(1)) gradient.set_accumulator(1, add_partials(recorder, made[1], gradient.accumulator(1)));
}

}  // namespace

const OpSpec rmsnorm_spec = {.name = "rmsnorm",
                             .infer = infer_rmsnorm,
                             .cost = rmsnorm_cost,
                             .gradient = rmsnorm_gradient,
                             .shares = {{.write = 0, .read = 0}}};
const OpSpec rmsnorm_dx_spec = {.name = "rmsnorm_dx",
                                .infer = infer_rmsnorm_dx,
                                .cost = rmsnorm_dx_cost,
                                .gradient = nullptr,
                                .shares = {{.write = 0, .read = 3}, {.write = 0, .read = 0}}};

Operand rmsnorm(Recorder& recorder, Operand x, Operand w, double epsilon) {
  return recorder.record(rmsnorm_spec, {{"epsilon", epsilon}}, {x, w})[0];
}

}  // namespace spillway
