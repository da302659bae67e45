#include "session/feed.h"

#include <algorithm>
#include <cstring>

namespace spillway {

BatchFeed::BatchFeed(Executor& executor, std::int32_t program, const std::vector<MicroBatchInputs>& micro_batches,
                     const StepShape& shape, const Windows& windows)
    : executor_(executor), program_(program), micro_batches_(micro_batches), shape_(shape), windows_(windows) {}

std::span<std::int32_t> BatchFeed::host(const Operand& operand) const {
  return {reinterpret_cast<std::int32_t*>(executor_.host_value(program_, operand)),
          static_cast<std::size_t>(shape_.tokens())};
}

std::int64_t BatchFeed::fill(std::int64_t first, std::int64_t end) {
  const auto length = static_cast<std::size_t>(shape_.sequence_length);
  std::int64_t targets = 0;
  for (const MicroBatchInputs& inputs : micro_batches_) {
    for (std::int64_t s = 0; s < shape_.sequences; ++s, ++first) {
      const std::size_t at = static_cast<std::size_t>(s) * length;
      const auto target = host(inputs.targets).subspan(at, length);
      const auto position = host(inputs.positions).subspan(at, length);
      windows_.read(windows_.index(first), host(inputs.ids).subspan(at, length), target);
      for (std::size_t i = 0; i < length; ++i) position[i] = static_cast<std::int32_t>(i);
      if (first >= end) std::fill(target.begin(), target.end(), -1);
      targets += first < end ? shape_.sequence_length : 0;
    }
  }
  return targets;
}

void set_input(Executor& executor, std::int32_t program, const Operand& operand, float value) {
  std::memcpy(executor.host_value(program, operand), &value, sizeof value);
}

void set_frequencies(Executor& executor, std::int32_t program, const Operand& operand, const ModelConfig& config) {
  if (!operand.exists()) return;
  const std::vector<float> frequencies = rope_inverse_frequencies(config);
  std::memcpy(executor.host_value(program, operand), frequencies.data(), frequencies.size() * sizeof(float));
}

}  // namespace spillway
