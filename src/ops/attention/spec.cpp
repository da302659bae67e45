#include <cmath>

#include "base/error.h"
#include "ops/attention/attention.h"
#include "ops/float_types.h"

namespace spillway {
namespace {

Attrs attributes(const AttentionShape& shape, bool packed) {
  Attrs attrs({{"sequence_length", shape.sequence_length},
               {"heads", shape.heads},
               {"kv_heads", shape.kv_heads},
               {"head_dim", shape.head_dim}});
  if (packed) attrs.set("packed", std::int64_t{1});
  return attrs;
}

// Checks q, k, v (or qkv) and returns the type of q.
ValueType check_inputs(const Attrs& attrs, std::span<const ValueType> reads) {
  const AttentionShape shape = attention_shape(attrs);
  const ValueType& first = reads[0];
  check_float_value(first, "q");
  SPILLWAY_CHECK(first.rows % shape.sequence_length == 0, "{} rows in sequences of {}", first.rows,
                 shape.sequence_length);
  const std::int64_t q_cols = shape.heads * shape.head_dim;
  const std::int64_t kv_cols = shape.kv_heads * shape.head_dim;
  const std::int64_t first_cols = attention_packed(attrs) ? q_cols + 2 * kv_cols : q_cols;
  SPILLWAY_CHECK(first.cols == first_cols, "{} columns, not {}", first.cols, first_cols);
  if (!attention_packed(attrs)) {
    const ValueType kv{.dtype = first.dtype, .rows = first.rows, .cols = kv_cols};
    check_same_type(reads[1], kv, "k");
    check_same_type(reads[2], kv, "v");
  }
  return {.dtype = first.dtype, .rows = first.rows, .cols = q_cols};
}

ValueType lse_type(const ValueType& q, const AttentionShape& shape) {
  return {.dtype = DType::f32, .rows = q.rows, .cols = shape.heads};
}

std::vector<ValueType> infer_attention(const Attrs& attrs, std::span<const ValueType> reads) {
  const ValueType q = check_inputs(attrs, reads);
  return {q, lse_type(q, attention_shape(attrs))};
}

std::vector<ValueType> infer_attention_dx(const Attrs& attrs, std::span<const ValueType> reads) {
  const ValueType q = check_inputs(attrs, reads);
  const std::size_t inputs = attention_packed(attrs) ? 1 : 3;
  check_same_type(reads[inputs], q, "o");
  check_same_type(reads[inputs + 1], lse_type(q, attention_shape(attrs)), "lse");
  check_same_type(reads[inputs + 2], q, "do");
  return {reads.begin(), reads.begin() + static_cast<std::ptrdiff_t>(inputs)};
}

// `products` of queries and keys of every query head, half of which lie above the diagonal.
Cost cost_of(double products, const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  const AttentionShape shape = attention_shape(attrs);
  Cost cost;
  cost.flops = products * static_cast<double>(reads[0].rows) * static_cast<double>(shape.sequence_length + 1) *
               static_cast<double>(shape.heads * shape.head_dim);
  for (const ValueType& type : reads) cost.bytes += static_cast<double>(type.bytes());
  for (const ValueType& type : writes) cost.bytes += static_cast<double>(type.bytes());
  return cost;
}

Cost cost_of_attention(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  return cost_of(2, attrs, reads, writes);
}

Cost cost_of_attention_dx(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  return cost_of(5, attrs, reads, writes);
}

void differentiate_attention(Gradient& gradient) {
  const Operand d_o = gradient.of_write(0);
  if (!d_o.exists()) return;
  SPILLWAY_CHECK(!gradient.of_write(1).exists(), "attention's lse has a gradient");
  const int inputs = attention_packed(gradient.attrs()) ? 1 : 3;
  std::vector<Operand> reads;
  for (int i = 0; i < inputs; ++i) reads.push_back(gradient.read(i));
  reads.insert(reads.end(), {gradient.write(0), gradient.write(1), d_o});
  const auto written = gradient.recorder().record(attention_dx_spec, gradient.attrs(), reads);
  for (int i = 0; i < inputs; ++i) {
    if (gradient.wants(i)) gradient.add(i, written[static_cast<std::size_t>(i)]);
  }
}

}  // namespace

const OpSpec attention_spec = {.name = "attention",
                               .infer = &infer_attention,
                               .cost = &cost_of_attention,
                               .gradient = &differentiate_attention,
                               .shares = {},
                               .multiplies = true};
const OpSpec attention_dx_spec = {.name = "attention_dx",
                                  .infer = &infer_attention_dx,
                                  .cost = &cost_of_attention_dx,
                                  .gradient = nullptr,
                                  .shares = {}};

AttentionShape attention_shape(const Attrs& attrs) {
  const AttentionShape shape{.sequence_length = attrs.integer("sequence_length"),
                             .heads = attrs.integer("heads"),
                             .kv_heads = attrs.integer("kv_heads"),
                             .head_dim = attrs.integer("head_dim")};
  SPILLWAY_CHECK(shape.sequence_length > 0 && shape.head_dim > 0, "{} tokens, head size {}", shape.sequence_length,
                 shape.head_dim);
  SPILLWAY_CHECK(shape.kv_heads > 0 && shape.heads > 0 && shape.heads % shape.kv_heads == 0, "{} heads for {}",
                 shape.kv_heads, shape.heads);
  return shape;
}

bool attention_packed(const Attrs& attrs) { return attrs.integer_or("packed", 0) != 0; }

double attention_scale(const Attrs& attrs) {
  for (const auto& [name, item] : attrs.items()) {
    if (name == "scale") return attrs.real("scale");
  }
  return 1.0 / std::sqrt(static_cast<double>(attrs.integer("head_dim")));
}

Operand attention(Recorder& recorder, Operand q, Operand k, Operand v, const AttentionShape& shape) {
  return recorder.record(attention_spec, attributes(shape, false), {q, k, v})[0];
}

Operand packed_attention(Recorder& recorder, Operand qkv, const AttentionShape& shape) {
  return recorder.record(attention_spec, attributes(shape, true), {qkv})[0];
}

}  // namespace spillway
