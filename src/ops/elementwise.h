// The grid of ops that work element by element: chunks of a fixed number of elements, whatever the shape's rows.
#pragma once

#include <algorithm>

#include "base/bytes.h"
#include "ops/kernel.h"

namespace spillway {

constexpr std::int64_t elementwise_chunk = 16384;

// Chunk is called as chunk(args, begin, count) for a range of elements that no other task touches.
template <typename Chunk>
class ElementwiseKernel : public Kernel {
 public:
  ElementwiseKernel(std::int64_t elements, Chunk chunk) : elements_(elements), chunk_(chunk) {}

  std::int64_t tasks() const override { return divide_up(elements_, elementwise_chunk); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t begin = task * elementwise_chunk;
    chunk_(args, begin, std::min(elementwise_chunk, elements_ - begin));
  }

 private:
  std::int64_t elements_;
  Chunk chunk_;
};

template <typename Chunk>
std::unique_ptr<Kernel> make_elementwise(const ValueType& type, Chunk chunk) {
  return std::make_unique<ElementwiseKernel<Chunk>>(type.elements(), chunk);
}

}  // namespace spillway
