// Choosing the next token from logits: temperature, then top-k, then top-p, as in Hugging Face's generate.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace spillway {

struct SamplerOptions {
  double temperature = 1.0;  // 0: the most likely token
  std::int64_t top_k = 50;   // 0: off
  double top_p = 1.0;
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  // At most, for each token of the vocabulary.
  static constexpr std::int64_t bytes_per_token = sizeof(std::int32_t) + sizeof(double);

  explicit Sampler(const SamplerOptions& options) : options_(options), state_(options.seed) {}
  // Equal seeds and logits give equal tokens.
  std::int64_t next(std::span<const float> logits);

 private:
  double uniform();  // in [0, 1)

  SamplerOptions options_;
  std::uint64_t state_;
  std::vector<std::int32_t> order_;  // tokens, likely ones first
  std::vector<double> weights_;      // of those that are kept
};

}  // namespace spillway
