#include <cstring>

#include "ops/matmul/pack.h"
#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

// Four rounds of interleaving rows i and i + 8 transpose a block of 16 x 16.
template <typename V>
SPILLWAY_INLINE void interleave_round(const V (&in)[16], V (&out)[16]) {
  for (int i = 0; i < 8; ++i) {
    out[2 * i] = __builtin_shufflevector(in[i], in[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    out[2 * i + 1] =
        __builtin_shufflevector(in[i], in[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
}

SPILLWAY_INLINE u32x16 widened(const std::uint16_t* from) {
  u16x16 half;
  std::memcpy(&half, from, sizeof half);
  return __builtin_convertvector(half, u32x16) << 16;
}

// Elements of From, made T on the way.
template <typename V, typename From, typename T>
SPILLWAY_INLINE void transpose_block(const From* from, std::int64_t from_stride, T* to, std::int64_t to_stride) {
  V a[16];
  V b[16];
  for (int i = 0; i < 16; ++i) {
    if constexpr (sizeof(From) == sizeof(T)) {
      std::memcpy(&a[i], from + i * from_stride, sizeof(V));
    } else {
      a[i] = widened(from + i * from_stride);
    }
  }
  interleave_round(a, b);
  interleave_round(b, a);
  interleave_round(a, b);
  interleave_round(b, a);
  for (int i = 0; i < 16; ++i) std::memcpy(to + i * to_stride, &a[i], sizeof(V));
}

template <typename V, typename From, typename T>
void transpose(const From* from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols, T* to,
               std::int64_t to_stride) {
  const std::int64_t whole_rows = rows / 16 * 16;
  const std::int64_t whole_cols = cols / 16 * 16;
  // Down a whole cache line of columns before the next, so that lines written are complete while they are near.
  constexpr std::int64_t line = 64 / sizeof(T);
  for (std::int64_t first = 0; first < whole_cols; first += line) {
    const std::int64_t end = first + line < whole_cols ? first + line : whole_cols;
    for (std::int64_t r = 0; r < whole_rows; r += 16) {
      for (std::int64_t c = first; c < end; c += 16) {
        transpose_block<V>(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
      }
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = r < whole_rows ? whole_cols : 0; c < cols; ++c) {
      const From element = from[r * from_stride + c];
      to[c * to_stride + r] = static_cast<T>(sizeof(From) == sizeof(T) ? element : std::uint32_t{element} << 16);
    }
  }
}

// For each row of the panels a pair of rows of 16-bit elements, or one row, widened.
template <bool pairs>
void rows_in_panels(const std::uint16_t* from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols,
                    std::int64_t panel, std::uint32_t* to) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::uint16_t* const low = from + (pairs ? 2 * r : r) * from_stride;
    const std::uint16_t* const high = pairs ? low + from_stride : low;
    for (std::int64_t c = 0; c < cols; c += panel) {
      std::uint32_t* const row = to + c * rows + r * panel;
      const std::int64_t end = c + panel < cols ? c + panel : cols;
      std::int64_t i = c;
      for (; i + lanes <= end; i += lanes) {
        u32x16 units = widened(high + i);
        if constexpr (pairs) units |= widened(low + i) >> 16;
        std::memcpy(row + (i - c), &units, sizeof units);
      }
      for (; i < end; ++i) row[i - c] = (pairs ? low[i] : 0U) | std::uint32_t{high[i]} << 16;
    }
  }
}

void widen_row(const bf16_t* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(to + i, load(from + i));
  if (i < count) store_first(to + i, load_first(from + i, count - i), count - i);
}

void narrow_row(const float* from, std::int64_t count, bf16_t* to) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(to + i, load(from + i));
  if (i < count) store_first(to + i, load_first(from + i, count - i), count - i);
}

void add_row(const float* addend, std::int64_t count, float* row) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(row + i, load(row + i) + load(addend + i));
  if (i < count) store_first(row + i, load_first(row + i, count - i) + load_first(addend + i, count - i), count - i);
}

}  // namespace

PackKernels pack_kernels_of_target() {
  return {&transpose<u16x16, std::uint16_t, std::uint16_t>,
          &transpose<u32x16, std::uint32_t, std::uint32_t>,
          &transpose<u32x16, std::uint16_t, std::uint32_t>,
          &rows_in_panels<true>,
          &rows_in_panels<false>,
          &widen_row,
          &narrow_row,
          &add_row};
}

}  // namespace spillway::SPILLWAY_TARGET
