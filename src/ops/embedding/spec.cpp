#include "base/error.h"
#include "ops/embedding/embedding.h"
#include "ops/float_types.h"

namespace spillway {
namespace {

void check_ids(const ValueType& ids) {
  SPILLWAY_CHECK(ids.dtype == DType::i32 && ids.cols == 1, "ids of {} with {} columns", name_of(ids.dtype), ids.cols);
}

std::vector<ValueType> infer_rows(const Attrs& attrs, std::span<const ValueType> reads) {
  SPILLWAY_CHECK(reads.size() == 3, "{} reads", reads.size());
  const ValueType& ids = reads[0];
  const ValueType& tile = reads[1];
  const ValueType& previous = reads[2];
  check_ids(ids);
  SPILLWAY_CHECK(is_float_value(tile.dtype), "tile of {}", name_of(tile.dtype));
  SPILLWAY_CHECK(attrs.integer("row_begin") >= 0, "row_begin {}", attrs.integer("row_begin"));
  const ValueType out{tile.dtype, ids.rows, tile.cols};
  SPILLWAY_CHECK(previous.rows == 0 || previous == out, "previous is {} x {} of {}, not {} x {} of {}", previous.rows,
                 previous.cols, name_of(previous.dtype), out.rows, out.cols, name_of(out.dtype));
  return {out};
}

// Only rows are moved, whatever the size of the tile.
Cost rows_cost(const Attrs&, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  return {0, 2.0 * static_cast<double>(writes[0].bytes()) + static_cast<double>(reads[0].bytes())};
}

// The tile gathers what its rows were copied to. What a later tile replaced in `previous` is nothing that an earlier
// one looks at, so the whole gradient passes on.
void rows_gradient(Gradient& gradient) {
  const Operand dy = gradient.of_write(0);
  if (gradient.wants(1)) {
    gradient.set_accumulator(
        1, embed_grad(gradient.recorder(), gradient.read(0), dy, gradient.attrs().integer("row_begin"),
                      gradient.type_of(gradient.read(1)).rows, gradient.accumulator(1)));
  }
  if (gradient.wants(2)) gradient.add(2, dy);
}

std::vector<ValueType> infer_grad(const Attrs& attrs, std::span<const ValueType> reads) {
  SPILLWAY_CHECK(reads.size() == 3, "{} reads", reads.size());
  const ValueType& ids = reads[0];
  const ValueType& dx = reads[1];
  const ValueType& accumulator = reads[2];
  check_ids(ids);
  SPILLWAY_CHECK(is_float_value(dx.dtype) && dx.rows == ids.rows, "dx of {} has {} rows for {} ids", name_of(dx.dtype),
                 dx.rows, ids.rows);
  SPILLWAY_CHECK(attrs.integer("row_begin") >= 0, "row_begin {}", attrs.integer("row_begin"));
  const ValueType out{DType::f32, attrs.integer("rows"), dx.cols};
  SPILLWAY_CHECK(accumulator.rows == 0 || accumulator == out, "accumulator is {} x {} of {}, not {} x {} of f32",
                 accumulator.rows, accumulator.cols, name_of(accumulator.dtype), out.rows, out.cols);
  return {out};
}

Cost grad_cost(const Attrs&, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  const auto added = static_cast<double>(reads[1].elements());
  // In place, an accumulator is touched only at the rows added to; without one it is filled with zeros.
  const double fill_bytes = reads[2].rows > 0 ? 0 : static_cast<double>(writes[0].bytes());
  return {added, static_cast<double>(reads[1].bytes()) + 8 * added + fill_bytes};
}

std::vector<ValueType> infer_positions(const Attrs&, std::span<const ValueType> reads) {
  SPILLWAY_CHECK(reads.size() == 3, "{} reads", reads.size());
  const ValueType& x = reads[0];
  const ValueType& weight = reads[1];
  check_ids(reads[2]);
  SPILLWAY_CHECK(is_float_value(x.dtype) && weight.dtype == x.dtype && weight.cols == x.cols,
                 "weight has {} columns of {}, x {} of {}", weight.cols, name_of(weight.dtype), x.cols,
                 name_of(x.dtype));
  SPILLWAY_CHECK(reads[2].rows == x.rows, "{} positions for {} rows", reads[2].rows, x.rows);
  return {x};
}

Cost positions_cost(const Attrs&, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  return {static_cast<double>(writes[0].elements()),
          3.0 * static_cast<double>(writes[0].bytes()) + static_cast<double>(reads[2].bytes())};
}

void positions_gradient(Gradient& gradient) {
  const Operand dy = gradient.of_write(0);
  if (gradient.wants(0)) gradient.add(0, dy);
  if (gradient.wants(1)) {
    const std::int64_t rows = gradient.type_of(gradient.read(1)).rows;
    gradient.set_accumulator(1,
                             embed_grad(gradient.recorder(), gradient.read(2), dy, 0, rows, gradient.accumulator(1)));
  }
}

}  // namespace

const OpSpec embed_rows_spec{"embed_rows", infer_rows, rows_cost, rows_gradient, {{.write = 0, .read = 2}}};
const OpSpec embed_grad_spec{"embed_grad", infer_grad, grad_cost, nullptr, {{.write = 0, .read = 2}}};
const OpSpec add_positions_spec{
    "add_positions", infer_positions, positions_cost, positions_gradient, {{.write = 0, .read = 0}}};

Operand embed_rows(Recorder& recorder, Operand ids, Operand tile, std::int64_t row_begin, Operand previous) {
  return recorder.record1(embed_rows_spec, {{"row_begin", row_begin}}, {ids, tile, previous});
}

Operand embed_grad(Recorder& recorder, Operand ids, Operand dx, std::int64_t row_begin, std::int64_t rows,
                   Operand accumulator) {
  return recorder.record1(embed_grad_spec, {{"row_begin", row_begin}, {"rows", rows}}, {ids, dx, accumulator});
}

Operand add_positions(Recorder& recorder, Operand x, Operand weight, Operand positions) {
  return recorder.record1(add_positions_spec, {}, {x, weight, positions});
}

}  // namespace spillway
