// Where the tensors of a state can be read from, by name and rows: the executor's memory and slots, a commit on disk,
// or a checkpoint folder. Whoever saves or restores reads through this, so that all ways give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "executor/executor.h"
#include "state/state.h"

namespace spillway {

class StateSource {
 public:
  StateSource() = default;
  StateSource(const StateSource&) = delete;
  StateSource& operator=(const StateSource&) = delete;
  virtual ~StateSource() = default;

  // Rows [row_begin, row_begin + what `into` holds) of the tensor, in the dtype it has in the state; whole rows. Throws
  // DeviceError when the disk fails, UserError when what it holds is not what was written.
  virtual void read(const Tensor& tensor, std::int64_t row_begin, std::span<std::byte> into) = 0;
};

// The state of an executor between runs.
class ExecutorSource final : public StateSource {
 public:
  ExecutorSource(Executor& executor, const State& state) : executor_(executor), state_(state) {}
  void read(const Tensor& tensor, std::int64_t row_begin, std::span<std::byte> into) override;

 private:
  Executor& executor_;
  const State& state_;
};

// Fills every committed piece of the executor's state, in whatever pieces the source has it. Calls `between` before
// each. Throws as that and read do.
void restore_state(Executor& executor, const Layout& layout, const State& state, StateSource& source,
                   const std::function<void()>& between = {});

}  // namespace spillway
