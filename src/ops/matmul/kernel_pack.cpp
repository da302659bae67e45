#include <cstring>

#include "ops/matmul/pack.h"
#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

// Sixteen in one vector, whose elements change places.
using HalfRow = std::uint16_t __attribute__((vector_size(32)));
using UnitRow = std::uint32_t __attribute__((vector_size(64)));

SPILLWAY_INLINE UnitRow halves(const std::uint16_t* from) {
  HalfRow half;
  std::memcpy(&half, from, sizeof half);
#ifdef __AVX512F__
  return reinterpret_cast<UnitRow>(_mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(half)));
#else
  return __builtin_convertvector(half, UnitRow);
#endif
}
SPILLWAY_INLINE UnitRow widened(const std::uint16_t* from) { return halves(from) << 16; }

// Four rounds of interleaving rows i and i + 8 transpose a block of 16 x 16.
template <typename V>
SPILLWAY_INLINE void interleave_round(const V (&in)[16], V (&out)[16]) {
  for (int i = 0; i < 8; ++i) {
    out[2 * i] = __builtin_shufflevector(in[i], in[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    out[2 * i + 1] =
        __builtin_shufflevector(in[i], in[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
}

[[maybe_unused]] SPILLWAY_INLINE void transpose_in_registers(HalfRow (&a)[16]) {
  HalfRow b[16];
  interleave_round(a, b);
  interleave_round(b, a);
  interleave_round(a, b);
  interleave_round(b, a);
}

// Units, then pairs of them change places within 128 bits, then these.
[[maybe_unused]] SPILLWAY_INLINE void transpose_in_registers(UnitRow (&a)[16]) {
  UnitRow b[16];
  for (int i = 0; i < 16; i += 2) {
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int k = 0; k < 2; ++k) {
      a[i + 2 * k] =
          __builtin_shufflevector(b[i + k], b[i + k + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      a[i + 2 * k + 1] =
          __builtin_shufflevector(b[i + k], b[i + k + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  }
  const auto even = [](UnitRow x, UnitRow y) {
    return __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  };
  const auto odd = [](UnitRow x, UnitRow y) {
    return __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  };
  for (int i = 0; i < 16; i += 8) {
    for (int k = 0; k < 4; ++k) {
      b[i + k] = even(a[i + k], a[i + k + 4]);
      b[i + k + 4] = odd(a[i + k], a[i + k + 4]);
    }
  }
  for (int k = 0; k < 8; ++k) {
    a[k] = even(b[k], b[k + 8]);
    a[k + 8] = odd(b[k], b[k + 8]);
  }
}

// Elements of From, made T on the way.
template <typename V>
struct Block16 {
  static constexpr std::int64_t rows = 16;
  static constexpr std::int64_t cols = 16;

  template <typename From, typename T>
  SPILLWAY_INLINE static void transpose(const From* from, std::int64_t from_stride, T* to, std::int64_t to_stride) {
    V a[16];
    for (int i = 0; i < 16; ++i) {
      if constexpr (sizeof(From) == sizeof(T)) {
        std::memcpy(&a[i], from + i * from_stride, sizeof(V));
      } else {
        a[i] = widened(from + i * from_stride);
      }
    }
    transpose_in_registers(a);
    for (int i = 0; i < 16; ++i) std::memcpy(to + i * to_stride, &a[i], sizeof(V));
  }
};

#if defined(__AVX2__) && !defined(__AVX512F__)

// Of units in registers of 256 bits, sixteen of which do not hold a block of 16 x 16.
struct Block8 {
  static constexpr std::int64_t rows = 8;
  static constexpr std::int64_t cols = 8;
  using V = std::uint32_t __attribute__((vector_size(32)));
  using Half = std::uint16_t __attribute__((vector_size(16)));

  SPILLWAY_INLINE static V row(const std::uint32_t* from) {
    V out;
    std::memcpy(&out, from, sizeof out);
    return out;
  }
  SPILLWAY_INLINE static V row(const std::uint16_t* from) {
    Half half;
    std::memcpy(&half, from, sizeof half);
    return __builtin_convertvector(half, V) << 16;
  }

  // Units, then pairs of them change places within 128 bits, then these.
  template <typename From>
  SPILLWAY_INLINE static void transpose(const From* from, std::int64_t from_stride, std::uint32_t* to,
                                        std::int64_t to_stride) {
    V a[8];
    V b[8];
    for (int i = 0; i < 8; ++i) a[i] = row(from + i * from_stride);
    for (int i = 0; i < 8; i += 2) {
      b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
      b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) {
      for (int k = 0; k < 2; ++k) {
        a[i + 2 * k] = __builtin_shufflevector(b[i + k], b[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        a[i + 2 * k + 1] = __builtin_shufflevector(b[i + k], b[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
      }
    }
    for (int i = 0; i < 4; ++i) {
      b[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
      b[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int i = 0; i < 8; ++i) std::memcpy(to + i * to_stride, &b[i], sizeof(V));
  }
};

using UnitBlock = Block8;
using WidenedBlock = Block8;
using HalfBlock = Block16<HalfRow>;
// Rows are read in parts of a block, too short for the processor to foresee the next.
constexpr std::int64_t rows_ahead = 4;
#elif defined(__AVX512F__)

// Blocks are turned within 128 bits, for rows are loaded in such parts, each to where it ends: loads take half the
// shuffles' place.

// Masks are full: without them g++ 12 warns of its own header's undefined values.

// Of four rows, `distance` elements apart, the first 128 bits.
template <typename T>
SPILLWAY_INLINE __m512i four_rows(const T* from, std::int64_t distance) {
  const auto part = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * distance)); };
  __m512i all = _mm512_zextsi128_si512(part(0));
  all = _mm512_mask_broadcast_i32x4(all, 0x00f0, part(1));
  all = _mm512_mask_broadcast_i32x4(all, 0x0f00, part(2));
  return _mm512_mask_broadcast_i32x4(all, 0xf000, part(3));
}
template <typename T>
SPILLWAY_INLINE __m256i two_rows(const T* from, std::int64_t distance) {
  const auto part = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * distance)); };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(part(0)), part(1), 1);
}

SPILLWAY_INLINE __m512i low16(__m512i a, __m512i b) { return _mm512_maskz_unpacklo_epi16(~0U, a, b); }
SPILLWAY_INLINE __m512i high16(__m512i a, __m512i b) { return _mm512_maskz_unpackhi_epi16(~0U, a, b); }
SPILLWAY_INLINE __m512i low32(__m512i a, __m512i b) { return _mm512_maskz_unpacklo_epi32(0xffff, a, b); }
SPILLWAY_INLINE __m512i high32(__m512i a, __m512i b) { return _mm512_maskz_unpackhi_epi32(0xffff, a, b); }
SPILLWAY_INLINE __m512i low64(__m512i a, __m512i b) { return _mm512_maskz_unpacklo_epi64(0xff, a, b); }
SPILLWAY_INLINE __m512i high64(__m512i a, __m512i b) { return _mm512_maskz_unpackhi_epi64(0xff, a, b); }
SPILLWAY_INLINE __m256i low16(__m256i a, __m256i b) { return _mm256_unpacklo_epi16(a, b); }
SPILLWAY_INLINE __m256i high16(__m256i a, __m256i b) { return _mm256_unpackhi_epi16(a, b); }
SPILLWAY_INLINE __m256i low32(__m256i a, __m256i b) { return _mm256_unpacklo_epi32(a, b); }
SPILLWAY_INLINE __m256i high32(__m256i a, __m256i b) { return _mm256_unpackhi_epi32(a, b); }
SPILLWAY_INLINE __m256i low64(__m256i a, __m256i b) { return _mm256_unpacklo_epi64(a, b); }
SPILLWAY_INLINE __m256i high64(__m256i a, __m256i b) { return _mm256_unpackhi_epi64(a, b); }

// 8 x 8 elements of 16 bits in each 128 bits.
template <typename V>
SPILLWAY_INLINE void transpose_halves(V (&a)[8]) {
  V b[8];
  for (int i = 0; i < 8; i += 2) {
    b[i] = low16(a[i], a[i + 1]);
    b[i + 1] = high16(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int k = 0; k < 2; ++k) {
      a[i + 2 * k] = low32(b[i + k], b[i + k + 2]);
      a[i + 2 * k + 1] = high32(b[i + k], b[i + k + 2]);
    }
  }
  for (int k = 0; k < 4; ++k) {
    b[2 * k] = low64(a[k], a[k + 4]);
    b[2 * k + 1] = high64(a[k], a[k + 4]);
  }
  for (int i = 0; i < 8; ++i) a[i] = b[i];
}

struct HalfBlock {
  static constexpr std::int64_t rows = 32;
  static constexpr std::int64_t cols = 8;

  SPILLWAY_INLINE static void transpose(const std::uint16_t* from, std::int64_t from_stride, std::uint16_t* to,
                                        std::int64_t to_stride) {
    __m512i a[8];
    for (int i = 0; i < 8; ++i) a[i] = four_rows(from + i * from_stride, 8 * from_stride);
    transpose_halves(a);
    for (int i = 0; i < 8; ++i) _mm512_storeu_si512(to + i * to_stride, a[i]);
  }
};

struct WidenedBlock {
  static constexpr std::int64_t rows = 16;
  static constexpr std::int64_t cols = 8;

  SPILLWAY_INLINE static void transpose(const std::uint16_t* from, std::int64_t from_stride, std::uint32_t* to,
                                        std::int64_t to_stride) {
    __m256i a[8];
    for (int i = 0; i < 8; ++i) a[i] = two_rows(from + i * from_stride, 8 * from_stride);
    transpose_halves(a);
    for (int i = 0; i < 8; ++i)
      _mm512_storeu_si512(to + i * to_stride,
                          _mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, a[i]), 16));
  }
};

struct UnitBlock {
  static constexpr std::int64_t rows = 16;
  static constexpr std::int64_t cols = 4;

  SPILLWAY_INLINE static void transpose(const std::uint32_t* from, std::int64_t from_stride, std::uint32_t* to,
                                        std::int64_t to_stride) {
    __m512i a[4];
    for (int i = 0; i < 4; ++i) a[i] = four_rows(from + i * from_stride, 4 * from_stride);
    const __m512i b[] = {low32(a[0], a[1]), high32(a[0], a[1]), low32(a[2], a[3]), high32(a[2], a[3])};
    _mm512_storeu_si512(to, low64(b[0], b[2]));
    _mm512_storeu_si512(to + to_stride, high64(b[0], b[2]));
    _mm512_storeu_si512(to + 2 * to_stride, low64(b[1], b[3]));
    _mm512_storeu_si512(to + 3 * to_stride, high64(b[1], b[3]));
  }
};

constexpr std::int64_t rows_ahead = 0;  // cost time on an Intel with AMX
#else
using UnitBlock = Block16<UnitRow>;
using WidenedBlock = Block16<UnitRow>;
using HalfBlock = Block16<HalfRow>;
constexpr std::int64_t rows_ahead = 0;  // not asked for; the gain was not measured here
#endif

template <typename Block, typename From, typename T>
void transpose(const From* from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols, T* to,
               std::int64_t to_stride) {
  const std::int64_t whole_rows = rows / Block::rows * Block::rows;
  const std::int64_t whole_cols = cols / Block::cols * Block::cols;
  // A block that writes whole cache lines goes along rows as they lie in memory. Otherwise down a line of columns
  // before the next, so that lines written are complete while they are near.
  constexpr std::int64_t line = 64 / sizeof(T);
  const std::int64_t width = Block::rows == line ? whole_cols : line;
  for (std::int64_t first = 0; first < whole_cols; first += width) {
    const std::int64_t end = first + width < whole_cols ? first + width : whole_cols;
    for (std::int64_t r = 0; r < whole_rows; r += Block::rows) {
      for (std::int64_t c = first; c < end; c += Block::cols) {
        Block::transpose(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
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

SPILLWAY_INLINE std::uint32_t unit(std::uint32_t element) { return element; }
SPILLWAY_INLINE std::uint32_t unit(std::uint16_t element) { return std::uint32_t{element} << 16; }
SPILLWAY_INLINE UnitRow units(const std::uint16_t* from) { return widened(from); }
SPILLWAY_INLINE UnitRow units(const std::uint32_t* from) {
  UnitRow out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

// Whole panels of sixteen columns.
void pairs_in_lines(const std::uint16_t* from, std::int64_t from_stride, std::int64_t pairs, std::int64_t cols,
                    std::uint32_t* to) {
  for (std::int64_t r = 0; r < pairs; ++r) {
    const std::uint16_t* const low = from + 2 * r * from_stride;
    const std::uint16_t* const high = low + from_stride;
    std::uint32_t* row = to + r * lanes;
    for (std::int64_t c = 0; c < cols; c += lanes, row += pairs * lanes) {
      const UnitRow both = widened(high + c) | halves(low + c);
      std::memcpy(row, &both, sizeof both);
    }
  }
}

// For each row of the panels a pair of rows of 16-bit elements, or one row, of units or widened.
template <bool pairs, typename T>
void rows_in_panels(const T* from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols, std::int64_t panel,
                    std::uint32_t* to) {
  if constexpr (pairs) {
    if (panel == lanes && cols % lanes == 0) {
      pairs_in_lines(from, from_stride, rows, cols, to);
      return;
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const low = from + (pairs ? 2 * r : r) * from_stride;
    const T* const high = pairs ? low + from_stride : low;
    for (std::int64_t c = 0; c < cols; c += panel) {
      std::uint32_t* const row = to + c * rows + r * panel;
      const std::int64_t end = c + panel < cols ? c + panel : cols;
      std::int64_t i = c;
      for (; i + lanes <= end; i += lanes) {
        if (!pairs && rows_ahead > 0 && r + rows_ahead < rows) __builtin_prefetch(high + i + rows_ahead * from_stride);
        UnitRow both = units(high + i);
        if constexpr (pairs) both |= halves(low + i);
        std::memcpy(row + (i - c), &both, sizeof both);
      }
      for (; i < end; ++i) row[i - c] = (pairs ? std::uint32_t{low[i]} : 0U) | unit(high[i]);
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
  return {&transpose<HalfBlock, std::uint16_t, std::uint16_t>,
          &transpose<UnitBlock, std::uint32_t, std::uint32_t>,
          &transpose<WidenedBlock, std::uint16_t, std::uint32_t>,
          &rows_in_panels<true, std::uint16_t>,
          &rows_in_panels<false, std::uint16_t>,
          &rows_in_panels<false, std::uint32_t>,
          &widen_row,
          &narrow_row,
          &add_row};
}

}  // namespace spillway::SPILLWAY_TARGET
