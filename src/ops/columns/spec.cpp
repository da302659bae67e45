#include "base/error.h"
#include "ops/columns/columns.h"

namespace spillway {
namespace {

std::vector<ValueType> infer(const Attrs& attrs, std::span<const ValueType> reads) {
  const ValueType& x = reads[0];
  const std::int64_t rows = attrs.integer("row_count");
  const std::int64_t cols = attrs.integer("col_count");
  SPILLWAY_CHECK(attrs.integer("row_begin") + rows <= x.rows && attrs.integer("col_begin") + cols <= x.cols,
                 "{} x {} at ({}, {}) of {} x {}", rows, cols, attrs.integer("row_begin"), attrs.integer("col_begin"),
                 x.rows, x.cols);
  return {{x.dtype, rows, cols}};
}

Cost cost(const Attrs&, std::span<const ValueType>, std::span<const ValueType> writes) {
  return {0, 2.0 * static_cast<double>(writes[0].bytes())};
}

Operand copy_out(Recorder& recorder, Operand x, const ValueType& type, std::int64_t row, std::int64_t col) {
  return recorder.record1(
      columns_spec, {{"row_begin", row}, {"row_count", type.rows}, {"col_begin", col}, {"col_count", type.cols}}, {x});
}

}  // namespace

const OpSpec columns_spec{"columns", infer, cost, nullptr, {}};

Operand columns(Recorder& recorder, Operand x, std::int64_t begin, std::int64_t count) {
  const ValueType type = recorder.program().type_of(x);
  return copy_out(recorder, x, {type.dtype, type.rows, count}, 0, begin);
}

Operand row(Recorder& recorder, Operand x, std::int64_t index) {
  const ValueType type = recorder.program().type_of(x);
  return copy_out(recorder, x, {type.dtype, 1, type.cols}, index, 0);
}

}  // namespace spillway
