// One matrix product C = A·B (+ bias) (+ C) on dense row-major matrices, by oneDNN, on the calling thread alone. Its
// bits depend on its shape and on the processor, and on nothing else: not on the thread, the alignment, the history of
// the process or what runs beside it.
//
// How that is kept: no primitive cache (with one, a product with one row took whichever sibling was made first);
// scratch given by the caller; one OpenMP thread; and, from AVX-512 on, only oneDNN's batch-reduce kernels. Those
// allocate a few hundred bytes in each run; the gemm that oneDNN has below AVX-512 allocates its packing buffers too
// (16 KiB with AVX2, some MiB with SSE4.1).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "ops/dispatch.h"

namespace spillway {

struct MatmulShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType in = DType::f32;      // of A and B
  DType out = DType::f32;     // of C
  bool transposed_b = false;  // B is stored [n, k], otherwise [k, n]
  bool has_bias = false;      // [n], added in fp32 before C is rounded
  DType bias = DType::f32;
  bool accumulate = false;  // adds to the C that is there

  bool operator==(const MatmulShape&) const = default;
};

struct MatmulOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* c = nullptr;
  void* scratch = nullptr;  // scratch_bytes(), 64-byte aligned, contents undefined; of one run at a time
};

class Matmul {
 public:
  // Throws UserError when oneDNN has no implementation that keeps the rules above.
  explicit Matmul(const MatmulShape& shape);

  ~Matmul();
  Matmul(Matmul&&) noexcept;
  Matmul& operator=(Matmul&&) noexcept;

  std::int64_t scratch_bytes() const;
  // May be called from several threads at once.
  void run(const MatmulOperands& operands) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// Sets this thread's OpenMP thread count to 1. Every thread that runs products calls it; the first product of a thread
// does so too.
void prepare_matmul_thread();

// Lets products use no more than this instruction set. Before the first product is made; without it, best_isa() counts.
void cap_matmul_isa(Isa isa);

// Whether products take bf16 as they are. Without it, Matmul is for f32 only, and PanelMatmul widens bf16 to f32.
bool matmul_has_bf16();

// The target whose register tiles (tile_matmul.h) take the products: AVX2 or AVX-512 where it is what multiplies.
// baseline: all go to the library, as with SPILLWAY_TILES=off in the environment.
Isa matmul_tile_isa();

// How those multiply bf16: pairs by vdpbf16ps, each number widened to f32, by multiply-add, or by AMX.
enum class Bf16Product : std::uint8_t { pairs, widened, amx };

// AMX where processor and kernel have it. Otherwise widened where there is no AVX512_BF16, and on Intel's processors,
// where a multiply-add of f32 has twice the rate of vdpbf16ps; on AMD's it has half. SPILLWAY_TILES=pairs, widened or
// amx in the environment says otherwise, where the processor has it.
Bf16Product matmul_bf16_product();
bool matmul_has(Bf16Product how);

// What the bits of products depend on: library version, instruction set, implementations, panel sizes.
std::string matmul_numeric_key();

}  // namespace spillway
