#include "base/bytes.h"
#include "ops/float_types.h"
#include "ops/reduce/reduce.h"

namespace spillway {
namespace {

std::vector<ValueType> infer_column_sums(const Attrs&, std::span<const ValueType> reads) {
  check_float_value(reads[0], "column_sums dy");
  return {{DType::f32, divide_up(reads[0].rows, partial_block_rows), reads[0].cols}};
}

std::vector<ValueType> infer_add_partials(const Attrs&, std::span<const ValueType> reads) {
  const ValueType& partials = reads[0];
  SPILLWAY_CHECK(partials.dtype == DType::f32, "add_partials of {}", name_of(partials.dtype));
  const ValueType sum{DType::f32, partials.cols, 1};
  if (reads[1].rows != 0) check_same_type(reads[1], sum, "add_partials accumulator");
  return {sum};
}

Cost sum_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  cost.flops = static_cast<double>(reads[0].elements());
  return cost;
}

}  // namespace

const OpSpec column_sums_spec = {
    .name = "column_sums", .infer = infer_column_sums, .cost = sum_cost, .gradient = nullptr, .shares = {}};
const OpSpec add_partials_spec = {.name = "add_partials",
                                  .infer = infer_add_partials,
                                  .cost = sum_cost,
                                  .gradient = nullptr,
                                  .shares = {{.write = 0, .read = 1}}};

Operand column_sums(Recorder& recorder, Operand dy) { return recorder.record1(column_sums_spec, {}, {dy}); }

Operand add_partials(Recorder& recorder, Operand partials, Operand accumulator) {
  return recorder.record1(add_partials_spec, {}, {partials, accumulator});
}

}  // namespace spillway
