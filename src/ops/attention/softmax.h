// The parts of attention between the products, on dense blocks of block_rows x block_rows scores. T is what products
// read: float, or bf16; `round_terms` rounds what is stored as float to bf16 too, for processors without bf16 products.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace spillway {

// Exponentials are to base 2: log2(e) is in the factor of the scores. A score less the row's offset comes first, so
// that the largest of a row has an exponent of 0 however large scores are.
struct SoftmaxBlock {
  std::int64_t size = 0;  // rows and columns, a multiple of 16
  bool diagonal = false;  // only keys up to the query's own place count
  float scale = 1;
  float factor = 1;  // scale · log2(e), above 0
};

template <typename T>
struct AttentionKernels {
  // largest[r] = max(largest[r], scores[r][c] over the keys that count), as 16 partial ones a row; starts from
  // -infinity.
  void (*find_largest)(const SoftmaxBlock& block, const float* scores, float* largest);
  // terms[r][c] = 2^(factor · (scores[r][c] - offsets[r])), 0 for keys that do not count; sums[r] adds their lanes, as
  // 16 partial sums a row.
  void (*exponentials)(const SoftmaxBlock& block, bool round_terms, const float* scores, const float* offsets, T* terms,
                       float* sums);
  // From transposed scores (rows are keys, columns are queries): p = 2^(factor · (score - offsets[query])) and ds = p ·
  // (dp - delta[query]) · scale, transposed as well.
  void (*gradient)(const SoftmaxBlock& block, bool round_terms, const float* scores, const float* dp,
                   const float* offsets, const float* delta, T* p, T* ds);
  // Of 16 partial ones, and the sum of 16 partial sums.
  float (*largest)(const float* partial);
  float (*total)(const float* partial_sums);
};

// The same for rows of a value, in its dtype D.
template <typename D>
struct RowKernels {
  // The dot product of two rows, in 16 lanes.
  float (*dot)(const D* a, const D* b, std::int64_t count);
  // to[i] = round(row[i] · factor).
  void (*scaled)(const float* row, float factor, std::int64_t count, D* to);
};

template <typename T>
const AttentionKernels<T>& attention_kernels();
template <typename D>
const RowKernels<D>& row_kernels();

}  // namespace spillway
