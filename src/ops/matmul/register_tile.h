// The innermost product: one tile of C in registers, with AMX one after the other of a few rows, over a chunk of k.
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
  std::int64_t b_panel = 0;  // units from a panel to the next, with AMX
  std::int64_t steps = 0;
  const float* start = nullptr;  // sums of the steps before, rows start_stride apart; or null
  std::int64_t start_stride = 0;
  const float* bias = nullptr;  // of the panel's columns, or null
  const float* sum = nullptr;   // rows c_stride apart, or null
  void* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t rows = 0;     // that exist; a vector kernel is made for its rows
  std::int64_t columns = 0;  // that exist, at most those of the panel, or with AMX of all panels
  bool waits = false;        // `c` are sums that wait, f32 whatever the dtype of C
  bool more_rows = false;    // as many follow in A, and are wanted next
};

using RegisterTileKernel = void (*)(const RegisterTile& tile);

// For 1 to 8 rows of 48 columns, or 1 to 6 rows of 64, of units of this dtype. Needs AVX-512, and AVX512_BF16 for units
// of bf16.
RegisterTileKernel register_tile_kernel_avx512(DType unit, DType out, std::int64_t panel_columns, std::int64_t rows);

// For 1 to 6 rows of 16 columns, of units of f32. Needs AVX2 and FMA. Their bits are those of AVX-512's.
RegisterTileKernel register_tile_kernel_avx2(DType out, std::int64_t rows);

// This thread's matrix registers, while it exists. Needs AMX with bf16.
class AmxTiles {
 public:
  struct Product {
    DType out = DType::f32;
    bool adds = false;       // a sum
    bool passes_by = false;  // C is larger than the caches that a thread has for itself, and is written past them
  };
  explicit AmxTiles(const Product& product);
  ~AmxTiles();
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  // For panels of 16 columns of units of bf16 pairs, an even number of them: two are a tile, and `columns` those of all
  // tiles of these rows. A has 32 rows, of which `rows` exist; sums that wait have 32, and only they are read by
  // `start`. Sixteen steps are one instruction, which adds even products and odd ones apart, then both to the sum:
  // chunks but the last, and what a triangle leaves out, are multiples of 16 steps.
  // Bias, sum and rounding of a tile are done between the instructions of the next, those of the last by finish():
  // until then `bias`, `sum` and `c` are used.
  void multiply(const RegisterTile& tiles);
  void finish();

  // What is left to do of a tile.
  struct Unfinished {
    const float* bias = nullptr;
    const float* sum = nullptr;
    void* c = nullptr;
    std::int64_t c_stride = 0;
    std::int64_t row = 0;  // the first that is not finished
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    bool streams = false;  // its whole lines are written past the caches
  };

 private:
  alignas(64) float sums_[32][32];  // of that tile
  Unfinished last_;
  Product product_;
};

}  // namespace spillway
