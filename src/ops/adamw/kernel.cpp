// The update with moments in f32.
#include "ops/adamw/kernel.h"

#include <cstring>

#include "ops/adamw/lanes.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

template <typename T>
SPILLWAY_INLINE void update_vector(const AdamwStreams<T>& at, std::int64_t i, const AdamwScalars& by, float clip) {
  const f32x16 g = load(at.grad + i) * clip;
  const f32x16 m = next_m(load(at.exp_avg + i), g, by);
  const f32x16 v = next_v(load(at.exp_avg_sq + i), g, by);
  std::uint16_t* const low = sizeof(T) == sizeof(bf16_t) ? at.low + i : nullptr;
  const f32x16 master = next_master(load_master(at.weight + i, low), m, v, by);
  store(at.exp_avg + i, m);
  store(at.exp_avg_sq + i, v);
  store_master(at.weight + i, low, master);
}

// Less than a vector, in a copy.
template <typename T>
void update_rest(const AdamwStreams<T>& at, std::int64_t begin, const AdamwScalars& by, float clip) {
  T weight[lanes] = {}, grad[lanes] = {};
  float exp_avg[lanes] = {}, exp_avg_sq[lanes] = {};
  std::uint16_t low[lanes] = {};
  const auto count = static_cast<std::size_t>(at.count - begin);
  const auto copy = [count](auto* to, const auto* from) { std::memcpy(to, from, count * sizeof *to); };
  copy(weight, at.weight + begin);
  copy(grad, at.grad + begin);
  copy(exp_avg, at.exp_avg + begin);
  copy(exp_avg_sq, at.exp_avg_sq + begin);
  if constexpr (sizeof(T) == sizeof(bf16_t)) copy(low, at.low + begin);
  update_vector<T>({weight, exp_avg, exp_avg_sq, low, grad, lanes, 0}, 0, by, clip);
  copy(at.weight + begin, weight);
  copy(at.exp_avg + begin, exp_avg);
  copy(at.exp_avg_sq + begin, exp_avg_sq);
  if constexpr (sizeof(T) == sizeof(bf16_t)) copy(at.low + begin, low);
}

// Asks for the line of a stream that these sixteen elements begin, if they do: as evenly as lines are used. Those of 64
// elements asked for at once gained nothing on AMD's processors.
template <typename T>
SPILLWAY_INLINE void prefetch_line(const T* stream, std::int64_t i, std::int64_t ahead) {
  constexpr std::int64_t of_a_line = 64 / sizeof(T);
  if (i % of_a_line == 0) __builtin_prefetch(stream + i + ahead);
}

}  // namespace

template <typename T>
void adamw_chunk(const AdamwStreams<T>& given, const AdamwScalars& scalars, float clip) {
  const AdamwStreams<T> streams = given;
  const AdamwScalars by = scalars;
  std::int64_t begin = 0;
  for (; streams.ahead > 0 && begin + streams.ahead + lanes <= streams.count; begin += lanes) {
    prefetch_line(streams.weight, begin, streams.ahead);
    prefetch_line(streams.exp_avg, begin, streams.ahead);
    prefetch_line(streams.exp_avg_sq, begin, streams.ahead);
    if constexpr (sizeof(T) == sizeof(bf16_t)) prefetch_line(streams.low, begin, streams.ahead);
    prefetch_line(streams.grad, begin, streams.ahead);
    update_vector(streams, begin, by, clip);
  }
  for (; begin + lanes <= streams.count; begin += lanes) update_vector(streams, begin, by, clip);
  if (begin < streams.count) update_rest(streams, begin, by, clip);
}

template void adamw_chunk(const AdamwStreams<float>&, const AdamwScalars&, float);
template void adamw_chunk(const AdamwStreams<bf16_t>&, const AdamwScalars&, float);

}  // namespace spillway::SPILLWAY_TARGET
