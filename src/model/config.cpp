#include "model/config.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace spillway {
namespace {

double llama3_frequency(double frequency, const Rope& rope) {
  const auto context = static_cast<double>(rope.original_max_position_embeddings);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  if (wavelength < context / rope.high_freq_factor) return frequency;
  const double kept = (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - kept) * frequency / rope.factor + kept * frequency;
}

}  // namespace

std::string_view name_of(Family family) {
  switch (family) {
    case Family::llama: return "llama";
    case Family::qwen2: return "qwen2";
    case Family::qwen3: return "qwen3";
    case Family::gpt2: return "gpt2";
  }
  return "?";
}

std::vector<float> rope_inverse_frequencies(const ModelConfig& config) {
  SPILLWAY_CHECK(config.has_rope() && config.head_dim % 2 == 0, "family {}, head_dim {}", name_of(config.family),
                 config.head_dim);
  std::vector<float> frequencies;
  frequencies.reserve(static_cast<std::size_t>(config.head_dim / 2));
  for (std::int64_t i = 0; i < config.head_dim; i += 2) {
    double frequency = std::pow(config.rope.theta, -static_cast<double>(i) / static_cast<double>(config.head_dim));
    if (config.rope.scaling == RopeScaling::linear) frequency /= config.rope.factor;
    if (config.rope.scaling == RopeScaling::llama3) frequency = llama3_frequency(frequency, config.rope);
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

}  // namespace spillway
