#include "base/error.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace spillway {
namespace {

constexpr std::size_t first_tile = 2;  // reads before it: targets, scale

std::vector<ValueType> infer(const Attrs& attrs, std::span<const ValueType> reads) {
  SPILLWAY_CHECK(reads.size() > first_tile, "{} reads", reads.size());
  const std::int64_t begin = attrs.integer("row_begin");
  const std::int64_t count = attrs.integer("row_count");
  SPILLWAY_CHECK(reads[0].dtype == DType::i32 && reads[0].cols == 1, "targets of {} with {} columns",
                 name_of(reads[0].dtype), reads[0].cols);
  SPILLWAY_CHECK(begin >= 0 && count > 0 && begin + count <= reads[0].rows, "rows [{}, {}) of {} targets", begin,
                 begin + count, reads[0].rows);
  SPILLWAY_CHECK((reads[1] == ValueType{DType::f32, 1, 1}), "scale is {} x {} of {}", reads[1].rows, reads[1].cols,
                 name_of(reads[1].dtype));
  std::vector<ValueType> writes{{DType::f32, count, 1}};
  const DType dlogits = attrs.integer("dlogits_bf16") != 0 ? DType::bf16 : DType::f32;
  for (const ValueType& tile : reads.subspan(first_tile)) {
    SPILLWAY_CHECK(tile.dtype == DType::f32 && tile.rows == count && tile.cols > 0, "logits are {} x {} of {}",
                   tile.rows, tile.cols, name_of(tile.dtype));
    if (attrs.integer("gradient") != 0) writes.push_back({dlogits, count, tile.cols});
  }
  return writes;
}

Cost cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  const double flops_per_logit = attrs.integer("gradient") != 0 ? 50 : 25;  // one exp a pass
  for (const ValueType& tile : reads.subspan(first_tile)) {
    cost.flops += flops_per_logit * static_cast<double>(tile.elements());
  }
  return cost;
}

std::vector<Share> shares_of_tiles() {
  std::vector<Share> shares;
  for (int i = 0; i < 4096; ++i) shares.push_back({.write = 1 + i, .read = static_cast<int>(first_tile) + i});
  return shares;
}

std::vector<ValueType> infer_sum(const Attrs&, std::span<const ValueType> reads) {
  SPILLWAY_CHECK(!reads.empty(), "no losses");
  for (const ValueType& loss : reads) {
    SPILLWAY_CHECK(loss.dtype == DType::f32 && loss.cols == 1, "losses of {} with {} columns", name_of(loss.dtype),
                   loss.cols);
  }
  return {{DType::f64, 1, 1}};
}

Cost sum_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost = streaming_cost(attrs, reads, writes);
  for (const ValueType& loss : reads) cost.flops += static_cast<double>(loss.elements());
  return cost;
}

std::vector<Operand> record_chunk(Recorder& recorder, Operand targets, const TokenChunk& chunk, Operand scale,
                                  std::span<const Operand> logits, bool gradient, bool dlogits_bf16) {
  std::vector<Operand> reads{targets, scale};
  reads.insert(reads.end(), logits.begin(), logits.end());
  Attrs attrs{{"row_begin", chunk.row_begin},
              {"row_count", chunk.row_count},
              {"gradient", std::int64_t{gradient}},
              {"dlogits_bf16", std::int64_t{dlogits_bf16}}};
  return recorder.record(cross_entropy_spec, std::move(attrs), std::move(reads));
}

}  // namespace

const OpSpec cross_entropy_spec{"cross_entropy", infer, cost, nullptr, shares_of_tiles(), 0};
const OpSpec loss_sum_spec{"loss_sum", infer_sum, sum_cost, nullptr, {}};

CrossEntropy cross_entropy(Recorder& recorder, Operand targets, const TokenChunk& chunk, Operand scale,
                           std::span<const Operand> logits, DType dlogits_dtype) {
  SPILLWAY_CHECK(dlogits_dtype == DType::f32 || dlogits_dtype == DType::bf16, "dlogits of {}", name_of(dlogits_dtype));
  const std::vector<Operand> writes =
      record_chunk(recorder, targets, chunk, scale, logits, true, dlogits_dtype == DType::bf16);
  return {writes[0], {writes.begin() + 1, writes.end()}};
}

Operand cross_entropy_loss(Recorder& recorder, Operand targets, const TokenChunk& chunk, Operand scale,
                           std::span<const Operand> logits) {
  return record_chunk(recorder, targets, chunk, scale, logits, false, false)[0];
}

Operand loss_sum(Recorder& recorder, std::span<const Operand> losses) {
  return recorder.record1(loss_sum_spec, {}, {losses.begin(), losses.end()}, true);
}

}  // namespace spillway
