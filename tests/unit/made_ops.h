// Ops that are made up, for tests of what is recorded and not of what is computed.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "program/record.h"

namespace spillway {

inline constexpr ValueType activation{DType::f32, 4, 8};

inline std::vector<ValueType> like_first(const Attrs&, std::span<const ValueType> reads) { return {reads[0]}; }
inline std::vector<ValueType> like_second(const Attrs&, std::span<const ValueType> reads) { return {reads[1]}; }

inline OpSpec made_op(std::string_view name, std::vector<ValueType> (*infer)(const Attrs&, std::span<const ValueType>),
                      void (*gradient)(Gradient&) = nullptr) {
  OpSpec made;
  made.name = name;
  made.infer = infer;
  made.gradient = gradient;
  return made;
}

}  // namespace spillway
