// Inner loop of the update: all streams read and written once. T is float (a master) or bf16_t (its high half).
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/adamw/adamw.h"
#include "ops/dispatch.h"

namespace spillway {

// `count` elements, none of whose streams overlap; all but the gradient are updated in place.
template <typename T>
struct AdamwStreams {
  T* weight;
  float* exp_avg;
  float* exp_avg_sq;
  std::uint16_t* low;  // only with bf16_t
  const T* grad;
  std::int64_t count;
  std::int64_t ahead;  // elements between the one in use and the one whose line is asked for; 0: none is
};

// `rows` whole rows of `cols` elements, moments as in packed.h; otherwise the same.
template <typename T>
struct PackedAdamwStreams {
  T* weight;
  std::uint8_t* exp_avg;
  std::uint8_t* exp_avg_sq;
  std::uint16_t* low;  // only with bf16_t
  const T* grad;
  std::int64_t rows;
  std::int64_t cols;
};

}  // namespace spillway

SPILLWAY_DECLARE_TARGETS(template <typename T>
                         void adamw_chunk(const AdamwStreams<T>& streams, const AdamwScalars& scalars, float clip))
SPILLWAY_DECLARE_TARGETS(template <typename T> void adamw_chunk(const PackedAdamwStreams<T>& streams,
                                                                const AdamwScalars& scalars, float clip))
