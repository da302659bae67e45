// What an op is, apart from where it runs: shapes, cost, gradient, sharing. Pure; one folder an op under ops/.
#pragma once

#include <span>
#include <vector>

#include "program/program.h"

namespace spillway {

class Gradient;

// Floating-point operations and bytes of memory traffic of one op, for rooflines.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

// Write `write` may occupy the bytes of read `read` when nothing else needs that read afterwards.
struct Share {
  int write = 0;
  int read = 0;
};

struct OpSpec {
  std::string_view name;
  // The types of the writes. An absent optional read has rows == 0. Checks shapes with SPILLWAY_CHECK.
  std::vector<ValueType> (*infer)(const Attrs& attrs, std::span<const ValueType> reads) = nullptr;
  Cost (*cost)(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes) = nullptr;
  // Records the ops that turn gradients of the writes into gradients of the reads. Null: not differentiable.
  void (*gradient)(Gradient& gradient) = nullptr;
  std::vector<Share> shares;
  // The read in which attribute row_begin chooses where the op begins, or -1. Such ops share a kernel: the address of
  // that read moves instead.
  int offset_read = -1;
  // With attribute rounded = 1 and nothing to add to, its one write is bf16 where it is f32 without.
  bool rounds = false;
  // It computes matrix products: too dear to record again only to save its writes; see program/recompute.h.
  bool multiplies = false;
  // Its bits are the same on every processor, so a plan may run it where its operands lie.
  bool anywhere = false;
};

// The cost of an op that only moves its operands once.
Cost streaming_cost(const Attrs& attrs, std::span<const ValueType> reads, std::span<const ValueType> writes);

}  // namespace spillway
