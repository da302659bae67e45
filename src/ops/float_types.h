// The element types that activations, gradients and weights may have.
#pragma once

#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "program/program.h"

namespace spillway {

constexpr bool is_float_value(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; }

// Checks that the read `what` of an op is a matrix of f32 or bf16.
inline void check_float_value(const ValueType& type, std::string_view what) {
  SPILLWAY_CHECK(is_float_value(type.dtype), "{} is {}", what, name_of(type.dtype));
  SPILLWAY_CHECK(type.rows > 0 && type.cols > 0, "{} is {} x {}", what, type.rows, type.cols);
}

// Checks that two reads of an op have one type.
inline void check_same_type(const ValueType& a, const ValueType& b, std::string_view what) {
  SPILLWAY_CHECK(a == b, "{}: {} {} x {} against {} {} x {}", what, name_of(a.dtype), a.rows, a.cols, name_of(b.dtype),
                 b.rows, b.cols);
}

// Calls make.operator()<float>() or make.operator()<bf16_t>().
template <typename Make>
auto with_float_type(DType dtype, Make&& make) {
  SPILLWAY_CHECK(is_float_value(dtype), "{}", name_of(dtype));
  return dtype == DType::f32 ? make.template operator()<float>() : make.template operator()<bf16_t>();
}

}  // namespace spillway
