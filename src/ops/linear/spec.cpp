#include "base/error.h"
#include "ops/float_types.h"
#include "ops/linear/linear.h"
#include "ops/reduce/reduce.h"

namespace spillway {
namespace {

struct WeightSize {
  std::int64_t in = 0;
  std::int64_t out = 0;
};

WeightSize size_of_weight(const Attrs& attrs, const ValueType& weight) {
  if (linear_weight_out_in(attrs)) return {.in = weight.cols, .out = weight.rows};
  return {.in = weight.rows, .out = weight.cols};
}

void check_bias(const ValueType& bias, std::int64_t out) {
  if (bias.rows == 0) return;
  check_float_value(bias, "bias");
  SPILLWAY_CHECK(bias.elements() == out, "a bias of {} for {} outputs", bias.elements(), out);
}

void check_accumulator(const ValueType& accumulator, std::int64_t rows, std::int64_t cols) {
  if (accumulator.rows == 0) return;
  check_same_type(accumulator, {.dtype = DType::f32, .rows = rows, .cols = cols}, "accumulator");
}

std::vector<ValueType> infer_linear(const Attrs& attrs, std::span<const ValueType> reads) {
  const ValueType& x = reads[0];
  check_float_value(x, "x");
  const WeightSize weight = size_of_weight(attrs, reads[1]);
  SPILLWAY_CHECK(x.cols == weight.in && x.dtype == reads[1].dtype, "x {} x {} {}, weight for {} inputs {}", x.rows,
                 x.cols, name_of(x.dtype), weight.in, name_of(reads[1].dtype));
  check_bias(reads[2], weight.out);
  const DType dtype = attrs.integer_or("out_f32", 0) != 0 ? DType::f32 : x.dtype;
  return {{.dtype = dtype, .rows = linear_rows(attrs, x).count, .cols = weight.out}};
}

std::vector<ValueType> infer_linear_dx(const Attrs& attrs, std::span<const ValueType> reads) {
  const ValueType& dy = reads[0];
  check_float_value(dy, "dy");
  const WeightSize weight = size_of_weight(attrs, reads[1]);
  SPILLWAY_CHECK(dy.cols == weight.out && dy.dtype == reads[1].dtype, "dy {} x {} {}, weight for {} outputs {}",
                 dy.rows, dy.cols, name_of(dy.dtype), weight.out, name_of(reads[1].dtype));
  check_accumulator(reads[2], dy.rows, weight.in);
  const bool wide = reads[2].rows > 0 || attrs.integer_or("out_f32", 0) != 0;
  return {{.dtype = wide ? DType::f32 : dy.dtype, .rows = dy.rows, .cols = weight.in}};
}

std::vector<ValueType> infer_linear_dw(const Attrs& attrs, std::span<const ValueType> reads) {
  const ValueType& x = reads[0];
  const ValueType& dy = reads[1];
  check_float_value(x, "x");
  const LinearRows rows = linear_rows(attrs, x);
  SPILLWAY_CHECK(dy.rows == rows.count && dy.dtype == x.dtype, "dy {} x {} {} for {} rows of {}", dy.rows, dy.cols,
                 name_of(dy.dtype), rows.count, name_of(x.dtype));
  const bool rounded = attrs.integer_or("rounded", 0) != 0;
  SPILLWAY_CHECK(!rounded || reads[2].rows == 0, "a rounded gradient of {} rows has an accumulator", reads[2].rows);
  ValueType gradient{.dtype = rounded ? DType::bf16 : DType::f32, .rows = x.cols, .cols = dy.cols};
  if (linear_weight_out_in(attrs)) std::swap(gradient.rows, gradient.cols);
  check_accumulator(reads[2], gradient.rows, gradient.cols);
  return {gradient};
}

double moved_bytes(std::span<const ValueType> reads, std::span<const ValueType> writes) {
  double bytes = 0;
  for (const ValueType& type : reads) bytes += static_cast<double>(type.bytes());
  for (const ValueType& type : writes) bytes += static_cast<double>(type.bytes());
  return bytes;
}

// Of linear and linear_dx: every element written is a sum over one side of W.
Cost cost_of_rows(const Attrs&, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  const double flops = 2.0 * static_cast<double>(writes[0].rows) * static_cast<double>(reads[1].elements());
  return {.flops = flops, .bytes = moved_bytes(reads, writes)};
}

Cost cost_of_dw(const Attrs&, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  const double flops = 2.0 * static_cast<double>(reads[1].rows) * static_cast<double>(writes[0].elements());
  return {.flops = flops, .bytes = moved_bytes(reads, writes)};
}

void differentiate_linear(Gradient& gradient) {
  const Operand dy = gradient.of_write(0);
  if (!dy.exists()) return;
  const Operand x = gradient.read(0);
  const Operand weight = gradient.read(1);
  SPILLWAY_CHECK(gradient.type_of(dy).dtype == gradient.type_of(x).dtype, "the gradient of a linear op is {}",
                 name_of(gradient.type_of(dy).dtype));
  LinearOptions options{.weight_out_in = linear_weight_out_in(gradient.attrs())};
  Recorder& recorder = gradient.recorder();
  if (gradient.wants(0)) {
    SPILLWAY_CHECK(gradient.type_of(dy).rows == gradient.type_of(x).rows, "gradient of {} of {} rows",
                   gradient.type_of(dy).rows, gradient.type_of(x).rows);
    gradient.add(0, linear_dx(recorder, dy, weight, {}, options));
  }
  if (gradient.wants(1)) {
    const LinearRows rows = linear_rows(gradient.attrs(), gradient.type_of(x));
    options.row_begin = rows.begin;
    options.row_count = rows.count;
    gradient.set_accumulator(1, linear_dw(recorder, x, dy, gradient.accumulator(1), options));
  }
  if (gradient.wants(2)) {
    const Operand partials = column_sums(recorder, dy);
    gradient.set_accumulator(2, add_partials(recorder, partials, gradient.accumulator(2)));
  }
}

}  // namespace

const OpSpec linear_spec = {.name = "linear",
                            .infer = &infer_linear,
                            .cost = &cost_of_rows,
                            .gradient = &differentiate_linear,
                            .shares = {},
                            .offset_read = 0,
                            .multiplies = true};
const OpSpec linear_dx_spec = {.name = "linear_dx",
                               .infer = &infer_linear_dx,
                               .cost = &cost_of_rows,
                               .gradient = nullptr,
                               .shares = {{.write = 0, .read = 2}}};
const OpSpec linear_dw_spec = {.name = "linear_dw",
                               .infer = &infer_linear_dw,
                               .cost = &cost_of_dw,
                               .gradient = nullptr,
                               .shares = {{.write = 0, .read = 2}},
                               .offset_read = 0,
                               .rounds = true};

LinearRows linear_rows(const Attrs& attrs, const ValueType& x) {
  const LinearRows rows{.begin = attrs.integer_or("row_begin", 0), .count = attrs.integer_or("row_count", x.rows)};
  SPILLWAY_CHECK(rows.begin >= 0 && rows.count > 0 && rows.begin + rows.count <= x.rows, "rows {} + {} of {}",
                 rows.begin, rows.count, x.rows);
  return rows;
}

bool linear_weight_out_in(const Attrs& attrs) { return attrs.integer("weight_out_in") != 0; }

namespace {

Attrs attributes(const LinearOptions& options) {
  Attrs attrs;
  attrs.set("weight_out_in", std::int64_t{options.weight_out_in});
  if (options.out_f32) attrs.set("out_f32", std::int64_t{1});
  if (options.row_count >= 0) {
    attrs.set("row_begin", options.row_begin);
    attrs.set("row_count", options.row_count);
  }
  return attrs;
}

}  // namespace

Operand linear(Recorder& recorder, Operand x, Operand weight, Operand bias, const LinearOptions& options) {
  return recorder.record1(linear_spec, attributes(options), {x, weight, bias});
}

Operand linear_dx(Recorder& recorder, Operand dy, Operand weight, Operand accumulator, const LinearOptions& options) {
  return recorder.record1(linear_dx_spec, attributes(options), {dy, weight, accumulator});
}

Operand linear_dw(Recorder& recorder, Operand x, Operand dy, Operand accumulator, const LinearOptions& options) {
  return recorder.record1(linear_dw_spec, attributes(options), {x, dy, accumulator});
}

}  // namespace spillway
