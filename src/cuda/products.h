// Matrix products by cuBLASLt, which is loaded when a device is opened: it is large, and a program that uses no device
// need not have it.
//
// Each product's algorithm is asked for once, from its shape, dtypes and a workspace of one size, and no scheme that
// adds parts in the order in which they come is permitted; so the bits of a product depend on its shape, on the library
// and on the device. Sums are fp32.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "cuda/launch.h"

namespace spillway::cuda {

inline constexpr std::int64_t product_workspace_bytes = std::int64_t{32} << 20;

// C [m, n] = A·B (+ bias) (+ sum); all matrices dense and row-major.
struct ProductShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType in = DType::f32;
  DType out = DType::f32;
  bool transposed_a = false;  // A is stored [k, m]
  bool transposed_b = false;  // B is stored [n, k]
  bool has_bias = false;      // [n]
  DType bias = DType::f32;
  bool accumulate = false;
  std::int64_t a_alignment_bytes = 16;  // of the addresses of A and B, at most 16; those of the others have 16
  std::int64_t b_alignment_bytes = 16;
};

struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  const void* sum = nullptr;  // where the shape accumulates; may be c
  void* c = nullptr;
  void* workspace = nullptr;
};

// The library, open.
class ProductLibrary {
 public:
  ProductLibrary();  // throws DeviceError when it is not there
  ~ProductLibrary();
  ProductLibrary(const ProductLibrary&) = delete;
  ProductLibrary& operator=(const ProductLibrary&) = delete;

  std::string version() const;

  struct Calls;
  const Calls& calls() const { return *calls_; }

 private:
  std::unique_ptr<Calls> calls_;
};

class Product {
 public:
  // Throws UserError when the library has no algorithm for the shape. `library` outlives it.
  Product(const ProductLibrary& library, const ProductShape& shape);
  ~Product();
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void start(Stream stream, const ProductOperands& operands) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace spillway::cuda
