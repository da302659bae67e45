#include "base/bytes.h"
#include "base/error.h"
#include "ops/grad_norm/grad_norm.h"

namespace spillway {
namespace {

std::vector<ValueType> infer_squares(const Attrs& attrs, std::span<const ValueType> reads) {
  SPILLWAY_CHECK(reads.size() == 1, "{} reads", reads.size());
  const std::int64_t block_rows = attrs.integer("block_rows");
  SPILLWAY_CHECK(reads[0].dtype == DType::f32 || reads[0].dtype == DType::bf16, "gradient of {}",
                 name_of(reads[0].dtype));
  SPILLWAY_CHECK(block_rows > 0, "block_rows {}", block_rows);
  return {{DType::f64, divide_up(reads[0].rows, block_rows), 1}};
}

Cost squares_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  cost.flops = 2.0 * static_cast<double>(reads[0].elements());
  return cost;
}

std::vector<ValueType> infer_clip(const Attrs&, std::span<const ValueType> reads) {
  SPILLWAY_CHECK(reads.size() >= 2, "{} reads", reads.size());
  SPILLWAY_CHECK((reads[0] == ValueType{DType::f32, 1, 1}), "max_norm is {} x {} of {}", reads[0].rows, reads[0].cols,
                 name_of(reads[0].dtype));
  for (const ValueType& sums : reads.subspan(1)) {
    SPILLWAY_CHECK(sums.dtype == DType::f64 && sums.cols == 1, "block sums of {} with {} columns", name_of(sums.dtype),
                   sums.cols);
  }
  return {{DType::f64, 1, 1}, {DType::f32, 1, 1}};
}

}  // namespace

const OpSpec sum_squares_spec{"sum_squares", infer_squares, squares_cost, nullptr, {}};
const OpSpec clip_factor_spec{"clip_factor", infer_clip, streaming_cost, nullptr, {}};

Operand sum_squares(Recorder& recorder, Operand grad, std::int64_t block_rows) {
  return recorder.record1(sum_squares_spec, {{"block_rows", block_rows}}, {grad});
}

Clip clip_factor(Recorder& recorder, Operand max_norm, std::span<const Operand> sums) {
  std::vector<Operand> reads{max_norm};
  reads.insert(reads.end(), sums.begin(), sums.end());
  const std::vector<Operand> writes = recorder.record(clip_factor_spec, {}, std::move(reads), true);
  return {writes[0], writes[1]};
}

}  // namespace spillway
