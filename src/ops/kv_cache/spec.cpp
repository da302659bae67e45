#include "base/error.h"
#include "ops/float_types.h"
#include "ops/kv_cache/kv_cache.h"

namespace spillway {
namespace {

void check_positions(const ValueType& positions, std::int64_t rows) {
  SPILLWAY_CHECK((positions == ValueType{DType::i32, rows, 1}), "positions are {} x {} of {} for {} rows",
                 positions.rows, positions.cols, name_of(positions.dtype), rows);
}

std::vector<ValueType> infer_append(const Attrs&, std::span<const ValueType> reads) {
  SPILLWAY_CHECK(reads.size() == 3, "{} reads", reads.size());
  const ValueType& cache = reads[0];
  const ValueType& fresh = reads[1];
  SPILLWAY_CHECK(fresh.dtype == cache.dtype && fresh.cols == cache.cols, "fresh rows of {} x {}, a cache of {} x {}",
                 fresh.cols, name_of(fresh.dtype), cache.cols, name_of(cache.dtype));
  check_positions(reads[2], fresh.rows);
  return {cache};
}

// In place, only fresh rows move.
Cost append_cost(const Attrs&, std::span<const ValueType> reads, std::span<const ValueType>) {
  return {0, 2.0 * static_cast<double>(reads[1].bytes())};
}

std::vector<ValueType> infer_attention(const Attrs& attrs, std::span<const ValueType> reads) {
  SPILLWAY_CHECK(reads.size() == 4, "{} reads", reads.size());
  const ValueType& q = reads[0];
  const ValueType& keys = reads[1];
  const std::int64_t heads = attrs.integer("heads");
  const std::int64_t kv_heads = attrs.integer("kv_heads");
  const std::int64_t head_dim = attrs.integer("head_dim");
  SPILLWAY_CHECK(kv_heads > 0 && heads % kv_heads == 0, "{} heads over {} kv heads", heads, kv_heads);
  SPILLWAY_CHECK(is_float_value(q.dtype) && q.cols == heads * head_dim, "{} columns of {} for {} heads of {}", q.cols,
                 name_of(q.dtype), heads, head_dim);
  SPILLWAY_CHECK(keys.dtype == q.dtype && keys.cols == kv_heads * head_dim && keys == reads[2],
                 "a cache of {} x {} of {} and {} x {}", keys.rows, keys.cols, name_of(keys.dtype), reads[2].rows,
                 reads[2].cols);
  check_positions(reads[3], q.rows);
  return {q};
}

// As if every row attended to the whole cache.
Cost attention_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  cost.flops = 4.0 * static_cast<double>(reads[0].elements()) * static_cast<double>(reads[1].rows);
  return cost;
}

}  // namespace

const OpSpec kv_append_spec{"kv_append", infer_append, append_cost, nullptr, {{.write = 0, .read = 0}}};
const OpSpec kv_attention_spec{"kv_attention", infer_attention, attention_cost, nullptr, {}};

void kv_append(Recorder& recorder, Operand cache, Operand fresh, Operand positions, Operand into) {
  recorder.record_into(kv_append_spec, {}, {cache, fresh, positions}, {into});
}

Operand kv_attention(Recorder& recorder, Operand q, Operand keys, Operand values, Operand positions,
                     const HeadShape& shape) {
  return recorder.record1(kv_attention_spec,
                          {{"heads", shape.heads}, {"kv_heads", shape.kv_heads}, {"head_dim", shape.head_dim}},
                          {q, keys, values, positions});
}

}  // namespace spillway
