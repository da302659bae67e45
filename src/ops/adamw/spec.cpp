#include <bit>
#include <cmath>

#include "base/error.h"
#include "ops/adamw/adamw.h"

namespace spillway {
namespace {

const ValueType& at(std::span<const ValueType> reads, AdamwRead read) { return reads[static_cast<std::size_t>(read)]; }

std::vector<ValueType> infer(const Attrs& attrs, std::span<const ValueType> reads) {
  SPILLWAY_CHECK(reads.size() == 7, "{} reads", reads.size());
  const ValueType& weight = at(reads, AdamwRead::weight);
  const ValueType& low = at(reads, AdamwRead::low);
  const ValueType& grad = at(reads, AdamwRead::grad);
  const ValueType& clip = at(reads, AdamwRead::clip);
  const std::int64_t row_begin = attrs.integer("row_begin");
  const bool split = weight.dtype == DType::bf16;
  SPILLWAY_CHECK(split || weight.dtype == DType::f32, "weight of {}", name_of(weight.dtype));
  const bool packed = at(reads, AdamwRead::exp_avg).dtype == DType::u8;
  const ValueType moment =
      packed ? packed_moment_type(weight.rows, weight.cols) : ValueType{DType::f32, weight.rows, weight.cols};
  const ValueType low_bits{DType::u16, weight.rows, weight.cols};
  SPILLWAY_CHECK(at(reads, AdamwRead::exp_avg) == moment && at(reads, AdamwRead::exp_avg_sq) == moment,
                 "moments of {} and {} rows for a weight of {}", at(reads, AdamwRead::exp_avg).rows,
                 at(reads, AdamwRead::exp_avg_sq).rows, weight.rows);
  SPILLWAY_CHECK(split ? low == low_bits : low.rows == 0, "{} low rows for {} rows of {}", low.rows, weight.rows,
                 name_of(weight.dtype));
  SPILLWAY_CHECK(grad.dtype == weight.dtype && grad.cols == weight.cols, "gradient of {} with {} columns",
                 name_of(grad.dtype), grad.cols);
  SPILLWAY_CHECK(row_begin >= 0 && row_begin + weight.rows <= grad.rows, "rows [{}, {}) of {}", row_begin,
                 row_begin + weight.rows, grad.rows);
  SPILLWAY_CHECK(clip.rows == 0 || (clip == ValueType{DType::f32, 1, 1}), "clip is {} x {}", clip.rows, clip.cols);
  SPILLWAY_CHECK(at(reads, AdamwRead::scalars) == adamw_scalars_type, "scalars are {} x {}",
                 at(reads, AdamwRead::scalars).rows, at(reads, AdamwRead::scalars).cols);
  std::vector<ValueType> writes{weight, moment, moment};
  if (split) writes.push_back(low_bits);
  return writes;
}

Cost cost(const Attrs&, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost;
  for (const ValueType& write : writes) cost.bytes += 2.0 * static_cast<double>(write.bytes());
  const auto elements = static_cast<double>(writes[0].elements());
  cost.bytes += elements * static_cast<double>(size_of(at(reads, AdamwRead::grad).dtype));
  cost.flops = 14 * elements;
  return cost;
}

Operand newest(Recorder& recorder, PieceId id) {
  const State& state = recorder.state();
  const TensorId tensor = state.piece(id).tensor;
  const std::size_t index = index_of(id) - index_of(state.first_piece(tensor));
  return recorder.state_pieces(tensor, static_cast<std::int32_t>(index), 1);
}

}  // namespace

const OpSpec adamw_spec = {.name = "adamw",
                           .infer = infer,
                           .cost = cost,
                           .gradient = nullptr,
                           .shares = {{0, 0}, {1, 1}, {2, 2}, {3, 3}},
                           .offset_read = static_cast<int>(AdamwRead::grad),
                           .anywhere = true};

ValueType packed_moment_type(std::int64_t rows, std::int64_t cols) { return {DType::u8, rows, packed_row_bytes(cols)}; }

namespace {

// The products differ in every step until they underflow, beta2's after hundreds of thousands.
float noise_of(const AdamwProducts& products) {
  std::uint64_t h = std::bit_cast<std::uint64_t>(products.beta1) ^ std::bit_cast<std::uint64_t>(products.beta2) * 3;
  h = (h ^ (h >> 31)) * 0x9e3779b97f4a7c15ULL;
  return static_cast<float>(h >> 40);
}

}  // namespace

AdamwScalars adamw_scalars(const AdamwSettings& settings, const AdamwProducts& products, double learning_rate) {
  SPILLWAY_CHECK(products.beta1 < 1 && products.beta2 < 1, "beta products {} and {} before the first update",
                 products.beta1, products.beta2);
  return {
      .b1 = static_cast<float>(settings.beta1),
      .c1 = static_cast<float>(1 - settings.beta1),
      .b2 = static_cast<float>(settings.beta2),
      .c2 = static_cast<float>(1 - settings.beta2),
      .keep = static_cast<float>(1 - learning_rate * settings.weight_decay),
      .step = static_cast<float>(learning_rate / (1 - products.beta1)),
      .r = static_cast<float>(1 / std::sqrt(1 - products.beta2)),
      .eps = static_cast<float>(settings.epsilon),
      .noise = noise_of(products),
  };
}

void adamw(Recorder& recorder, const AdamwPieces& pieces, Operand grad, std::int64_t grad_row_begin, Operand clip,
           Operand scalars, bool decay) {
  std::vector<PieceId> updated{pieces.weight, pieces.exp_avg, pieces.exp_avg_sq};
  if (pieces.low != PieceId::none) updated.push_back(pieces.low);
  std::vector<Operand> reads;
  for (const PieceId id : updated) reads.push_back(newest(recorder, id));
  if (pieces.low == PieceId::none) reads.emplace_back();
  reads.insert(reads.end(), {grad, clip, scalars});
  std::vector<Operand> writes;
  for (const PieceId id : updated) writes.push_back(recorder.new_version(id));
  recorder.record_into(adamw_spec, {{"row_begin", grad_row_begin}, {"decay", std::int64_t{decay}}}, std::move(reads),
                       std::move(writes));
}

}  // namespace spillway
