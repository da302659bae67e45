// The AdamW update of one piece, in one form on every processor (add, multiply, divide and square root only):
//   g = grad * clip
//   m = b1 * m + c1 * g                 0 where |m| < 2^-126
//   v = b2 * v + c2 * (g * g)           0 where v < 2^-126
//   p = p * keep - step * (m / (sqrt(v) * r + eps))
// p is the f32 weight, or the f32 master joined from a bf16 weight and its 16 low bits (base/dtype.h). Moments are f32,
// or 8 bits an element (packed.h): then m and v are what their codes say, and what is stored is rounded by chance.
#pragma once

#include "base/bytes.h"
#include "program/record.h"

namespace spillway {

extern const OpSpec adamw_spec;

struct AdamwSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

// beta^t after t updates, as running products: pow differs between library builds. Kept in the commit.
struct AdamwProducts {
  double beta1 = 1;
  double beta2 = 1;

  void advance(const AdamwSettings& settings) {
    beta1 *= settings.beta1;
    beta2 *= settings.beta2;
  }
};

// What an update reads beside tensors: the layout of the input value f32 (1, 9). Computed in double, rounded once.
struct AdamwScalars {
  float b1;
  float c1;  // 1 - beta1
  float b2;
  float c2;    // 1 - beta2
  float keep;  // 1 - learning_rate * weight_decay
  float step;  // learning_rate / (1 - beta1^t)
  float r;     // 1 / sqrt(1 - beta2^t)
  float eps;
  float noise;  // an integer below 2^24 that differs from step to step
};
static_assert(sizeof(AdamwScalars) == 9 * sizeof(float));
inline constexpr ValueType adamw_scalars_type{DType::f32, 1, 9};

// The scalars of update t; `products` have been advanced t times, t >= 1.
AdamwScalars adamw_scalars(const AdamwSettings& settings, const AdamwProducts& products, double learning_rate);

// Elements that share an exponent where moments have 8 bits, and bytes of a row of codes and exponents.
inline constexpr std::int64_t packed_block = 64;
constexpr std::int64_t packed_row_bytes(std::int64_t cols) {
  return round_up(cols + divide_up(cols, packed_block), 64);
}

// Of the moments of rows x cols elements in 8 bits.
ValueType packed_moment_type(std::int64_t rows, std::int64_t cols);

// The same rows of four tensors; `low` only for a bf16 weight.
struct AdamwPieces {
  PieceId weight = PieceId::none;
  PieceId exp_avg = PieceId::none;
  PieceId exp_avg_sq = PieceId::none;
  PieceId low = PieceId::none;
};

// Records the update of one piece: reads the newest version of each state piece and makes the next, which may lie in
// place.
//   grad f32 or bf16 as the weight, (rows, cols) of the tensor or of some of its rows, the piece's from grad_row_begin
//   on clip f32 (1, 1) or absent (1); scalars f32 (1, 9) decay: false takes keep as 1 (biases, norms)
void adamw(Recorder& recorder, const AdamwPieces& pieces, Operand grad, std::int64_t grad_row_begin, Operand clip,
           Operand scalars, bool decay);

// Order of the reads: weight, exp_avg, exp_avg_sq, low or absent, grad, clip or absent, scalars. Writes: weight,
// exp_avg, exp_avg_sq, and low if it was read; each may share the read of its index.
enum class AdamwRead : int { weight, exp_avg, exp_avg_sq, low, grad, clip, scalars };

}  // namespace spillway
