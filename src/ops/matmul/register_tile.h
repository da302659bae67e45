// The innermost product: one tile of C in registers, over a chunk of k.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace spillway {

// `a` are rows of 32-bit units (an f32, or two bf16 that follow each other in k), a_stride units apart; `b` a packed
// panel, `panel_columns` units for each step of k. A product whose steps come in several calls has the bits of one
// call.
struct RegisterTile {
  const std::uint32_t* a = nullptr;
  std::int64_t a_stride = 0;
  const std::uint32_t* b = nullptr;
  std::int64_t b_panel = 0;  // units from a panel to the next, where a tile has two
  std::int64_t steps = 0;
  const float* start = nullptr;  // sums of the steps before, rows start_stride apart; or null
  std::int64_t start_stride = 0;
  const float* bias = nullptr;  // of the panel's columns, or null
  const float* sum = nullptr;   // rows c_stride apart, or null
  void* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t rows = 0;     // that exist; a vector kernel is made for its rows
  std::int64_t columns = 0;  // that exist, at most those of the panel or panels
};

using RegisterTileKernel = void (*)(const RegisterTile& tile);

// For 1 to 8 rows of 48 columns, or 1 to 6 rows of 64, of units of this dtype. Needs AVX-512, and AVX512_BF16 for units
// of bf16.
RegisterTileKernel register_tile_kernel_avx512(DType unit, DType out, std::int64_t panel_columns, std::int64_t rows);

// For 1 to 6 rows of 16 columns, of units of f32. Needs AVX2 and FMA. Their bits are those of AVX-512's.
RegisterTileKernel register_tile_kernel_avx2(DType out, std::int64_t rows);

// For two panels of 16 columns of units of bf16 pairs. A has 32 rows, of which `rows` exist; sums that wait have 32,
// and only they are read by `start`. Sixteen steps are one instruction, which adds even products and odd ones apart,
// then both to the sum: chunks but the last, and what a triangle leaves out, are multiples of 16 steps. Needs AMX with
// bf16, and AmxTiles on this thread.
RegisterTileKernel register_tile_kernel_amx(DType out);

// This thread's matrix registers, while it exists: set up for the kernel above, then given back.
class AmxTiles {
 public:
  AmxTiles();
  ~AmxTiles();
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

}  // namespace spillway
