// The innermost product: one tile of C in vector registers, over the whole of k.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/matmul/matmul.h"

namespace spillway {

// `a` are rows of 32-bit units (an f32, or two bf16 that follow each other in k), a_stride units apart; `b` a packed
// panel, `panel_columns` units for each step of k. For widened products of bf16, `a` is widened already, two f32 for
// each step, and `b` is not.
struct RegisterTile {
  const std::uint32_t* a = nullptr;
  std::int64_t a_stride = 0;
  const std::uint32_t* b = nullptr;
  std::int64_t steps = 0;
  const float* bias = nullptr;  // of the panel's columns, or null
  const float* sum = nullptr;   // rows c_stride apart, or null
  void* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t columns = 0;  // that exist, at most panel_columns
};

// For 1 to 8 rows of 48 columns, or 1 to 6 rows of 64. Needs AVX-512, and AVX512_BF16 where `in` is bf16, which is
// multiplied as `how` says.
using RegisterTileKernel = void (*)(const RegisterTile& tile);
RegisterTileKernel register_tile_kernel(DType in, Bf16Product how, DType out, std::int64_t panel_columns,
                                        std::int64_t rows);

}  // namespace spillway
