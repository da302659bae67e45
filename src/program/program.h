// A Program is what is computed: every op of a step, with the values it reads and writes. Sizes are known in full and
// every bit is fixed here: dtypes, chunk sizes, where a value is rounded, the order of each sum, the shape of each
// kernel call. It says nothing of where or when; that is the Plan's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "state/state.h"

namespace spillway {

enum class ValueId : std::int32_t { none = -1 };
enum class OpId : std::int32_t { none = -1 };
constexpr std::size_t index_of(ValueId id) { return static_cast<std::size_t>(id); }
constexpr std::size_t index_of(OpId id) { return static_cast<std::size_t>(id); }

// All values are dense row-major matrices; a vector of n numbers is n x 1 (or 1 x n where a kernel wants a row).
struct ValueType {
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 1;

  std::int64_t elements() const { return rows * cols; }
  std::int64_t bytes() const { return elements() * size_of(dtype); }
  bool operator==(const ValueType&) const = default;
};

enum class ValueKind : std::uint8_t {
  input,      // written by the host before the step: token ids, step scalars
  state_in,   // a piece of a state tensor as the step finds it
  state_out,  // a new version of a piece
  local,      // lives within the step
  output,     // read by the host after the step: losses, norms, logits
};

struct Value {
  ValueType type;
  ValueKind kind = ValueKind::local;
  PieceId piece = PieceId::none;  // of state kinds
};

// One or more values with consecutive ids that lie adjacent in memory, in order, and are read or written as one matrix
// whose rows are the rows of all. Most operands have count 1; a weight is the run of its pieces.
struct Operand {
  ValueId first = ValueId::none;
  std::int32_t count = 1;

  bool exists() const { return first != ValueId::none; }
  bool operator==(const Operand&) const = default;
};

// With the place in Program::values of each value, in order; none where the operand does not exist.
template <typename Visit>
void for_each_value(const Operand& operand, const Visit& visit) {
  if (!operand.exists()) return;
  for (std::size_t i = 0; i < static_cast<std::size_t>(operand.count); ++i) visit(index_of(operand.first) + i);
}

// Integers and reals by name, in the order they were given. Part of what a kernel is chosen by, so nothing that changes
// from step to step may be an attribute.
class Attrs {
 public:
  using Item = std::variant<std::int64_t, double>;

  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string_view, Item>> items) : items_(items) {}

  // The names must be string literals, or outlive the Program.
  void set(std::string_view name, Item item) { items_.emplace_back(name, item); }
  std::int64_t integer(std::string_view name) const;  // checks that it is there
  double real(std::string_view name) const;
  std::int64_t integer_or(std::string_view name, std::int64_t otherwise) const;
  std::span<const std::pair<std::string_view, Item>> items() const { return items_; }
  bool operator==(const Attrs&) const = default;

 private:
  std::vector<std::pair<std::string_view, Item>> items_;
};

enum class Phase : std::uint8_t { forward, head, backward, recompute, update, evaluate, generate };
std::string_view name_of(Phase phase);  // "forward", …

// Where in the step an op stands. Ops with equal labels that follow each other form a segment, the grain at which the
// planner decides.
struct Label {
  Phase phase = Phase::forward;
  std::int32_t layer = -1;        // -1: not in a layer
  std::int32_t micro_batch = -1;  // -1: of the whole step
  std::string_view part;          // "attention", "mlp", "embedding", "head", …; a literal
  std::int32_t index = 0;         // tells apart segments of one part: a vocabulary tile, a sub-group

  bool operator==(const Label&) const = default;
};
std::string describe(const Label& label);  // "backward layer 3 mlp micro-batch 1"

struct OpSpec;

struct Op {
  const OpSpec* spec = nullptr;
  Attrs attrs;
  std::vector<Operand> reads;  // an optional read that is absent has ValueId::none
  std::vector<Operand> writes;
  Label label;
  bool repeats = false;  // makes again what an op before it made; see program/recompute.h
};

struct Program {
  std::vector<Value> values;
  std::vector<Op> ops;            // in one valid order
  std::vector<PieceId> consumed;  // pieces of state that nothing reads after this Program

  const Value& value(ValueId id) const { return values[index_of(id)]; }
  // The matrix an operand stands for: the rows of all its values. An absent operand has no rows.
  ValueType type_of(const Operand& operand) const;
};

// One line an op, for people and for diffs.
std::string dump(const Program& program, const State& state);

}  // namespace spillway
