#include "base/error.h"
#include "ops/round/round.h"

namespace spillway {
namespace {

std::vector<ValueType> infer_round_to_bf16(const Attrs&, std::span<const ValueType> reads) {
  SPILLWAY_CHECK(reads[0].dtype == DType::f32, "round_to_bf16 of {}", name_of(reads[0].dtype));
  return {{DType::bf16, reads[0].rows, reads[0].cols}};
}

}  // namespace

const OpSpec round_to_bf16_spec = {
    .name = "round_to_bf16", .infer = infer_round_to_bf16, .cost = streaming_cost, .gradient = nullptr, .shares = {}};

Operand round_to_bf16(Recorder& recorder, Operand x) { return recorder.record1(round_to_bf16_spec, {}, {x}); }

}  // namespace spillway
