// The ops of one recorded training step, each on its own addresses in the step's layout, to be run by themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "executor/kernel_table.h"
#include "machine_limits.h"
#include "model/programs.h"

namespace spillway::bench {

// All addresses of a layout, in huge pages like a run's; only what is touched takes memory.
class Pages {
 public:
  explicit Pages(std::int64_t bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* first() const;
  // Nothing is done to the host's values, which lie elsewhere.
  void zero(const std::byte* at, std::int64_t bytes) const;
  void give_back() const;

 private:
  std::size_t bytes_;
  std::byte* data_;
};

struct StepOp {
  KernelKey key;  // with only those rows of a read that the op uses, where it uses some
  BoundProgram::Call call;
  bool in_head = false;

  bool is_linear() const { return key.spec->name.starts_with("linear"); }
  bool is_attention() const { return key.spec->name.starts_with("attention"); }
  bool in_place(std::size_t read, std::size_t write) const {
    return call.reads[read] != nullptr && call.reads[read] == call.writes[write];
  }
};

// What must be read and written, each once: of a table the rows that ids name, though they lie elsewhere in it.
std::vector<Stream> streams_of(const StepOp& op);

class StepOps {
 public:
  // Its inputs are random ids and targets, the positions of tokens, and the model's rope frequencies.
  StepOps(const ModelConfig& config, DType dtype, const StepShape& shape);

  // Ops that take the same time, by spec, types, what is done in place, and whether they stand in the head; in the
  // order of the step.
  std::vector<std::vector<StepOp>> kinds() const;
  // Zeros the op's operands, so that they have memory. Ops leave zeros where they work in place, so that no round meets
  // subnormals.
  void touch(const StepOp& op) const;
  void give_back() const { pages_.give_back(); }  // what was touched
  std::int64_t scratch_bytes() const { return kernels_.scratch_bytes(); }

 private:
  void feed(const StepShape& shape) const;

  Model model_;
  TrainingProgram training_;
  Layout layout_;
  Pages pages_;
  KernelCache kernels_;
  BoundProgram bound_;
};

}  // namespace spillway::bench
