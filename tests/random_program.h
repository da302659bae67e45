// Programs for tests of the plan: ops without meaning over state and local values, of every shape the layout and the
// planner tell apart. All sizes are multiples of 256 bytes.
#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "plan/layout.h"
#include "program/spec.h"

namespace spillway {

inline OpSpec spec_without_meaning(std::string_view name, std::vector<Share> shares) {
  OpSpec spec;
  spec.name = name;
  spec.shares = std::move(shares);
  return spec;
}
inline const OpSpec mix_spec = spec_without_meaning("mix", {});
inline const OpSpec in_place_spec = spec_without_meaning("in_place", {{0, 0}});
inline const OpSpec update_spec = [] {
  OpSpec spec = spec_without_meaning("update", {});
  spec.anywhere = true;
  return spec;
}();

class RandomPrograms {
 public:
  // With `updates_apart` updates share no segment with other ops, and read an output that is made before. `keeps`:
  // there is state that no commit holds too. The step makes it, next() uses it up and makes it anew, flush() uses it
  // up; nothing reads it after that, and look() does not know of it.
  explicit RandomPrograms(std::uint64_t seed, bool updates_apart = false, bool keeps = false)
      : random_(seed), updates_apart_(updates_apart) {
    plain_tensors_ = between(3, 8);
    for (int t = 0; t < plain_tensors_; ++t) add_tensor("tensor" + std::to_string(t), true);
    page_bytes_ = std::int64_t{4096} << between(0, 4);
    for (int t = keeps ? between(1, 3) : 0; t > 0; --t) add_tensor("kept" + std::to_string(t), false);
    make_program(step_, true, {.makes = keeps});
    make_program(look_, false, {});
    if (keeps) make_program(next_, true, {.uses = true, .makes = true});
    if (keeps) make_program(flush_, true, {.uses = true});
  }

  const State& state() const { return state_; }
  const Program& step() const { return step_; }  // changes state
  const Program& look() const { return look_; }  // only reads it
  // In this order; the last two only where state is kept.
  std::vector<const Program*> programs() const {
    if (next_.ops.empty()) return {&step_, &look_};
    return {&step_, &look_, &next_, &flush_};
  }
  std::int64_t page_bytes() const { return page_bytes_; }
  Layout layout() const { return lay_out(programs(), state_, page_bytes_); }

 private:
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(double share) { return std::uniform_real_distribution<double>(0, 1)(random_) < share; }

  ValueId add(Program& program, ValueType type, ValueKind kind, PieceId piece = PieceId::none) {
    program.values.push_back({type, kind, piece});
    return static_cast<ValueId>(program.values.size() - 1);
  }

  // What a Program does with state that no commit holds.
  struct Kept {
    bool uses = false;
    bool makes = false;
  };

  void add_tensor(std::string name, bool committed) {
    const bool large = chance(0.2);
    Tensor tensor;
    tensor.name = std::move(name);
    tensor.rows = large ? between(65, 200) : between(1, 40);
    tensor.cols = large ? 1024 : 64 * between(1, 6);
    tensor.committed = committed;
    state_.add(tensor, reduction_block_elements);
  }

  ValueType type_of(std::size_t piece) const {
    const Piece& rows = state_.pieces()[piece];
    const Tensor& tensor = state_.tensor(rows.tensor);
    return {tensor.dtype, rows.row_end - rows.row_begin, tensor.cols};
  }

  std::size_t plain_pieces() const {
    std::size_t pieces = 0;
    for (int t = 0; t < plain_tensors_; ++t)
      pieces += static_cast<std::size_t>(state_.piece_count(static_cast<TensorId>(t)));
    return pieces;
  }

  void enter_state(Program& program) {
    versions_.clear();
    for (std::size_t p = 0; p < plain_pieces(); ++p)
      versions_.push_back(add(program, type_of(p), ValueKind::state_in, static_cast<PieceId>(p)));
  }

  // Each at an op of its own, all in some order.
  void add_kept(Program& program, const Kept& kept) {
    for (std::size_t p = plain_pieces(); p < state_.pieces().size() && kept.uses; ++p) {
      const Operand old{add(program, type_of(p), ValueKind::state_in, static_cast<PieceId>(p)), 1};
      add_update(program, old);
      if (!kept.makes) program.consumed.push_back(static_cast<PieceId>(p));
      if (chance(0.7)) ++label_.layer;
    }
    for (int i = between(0, 20); i > 0; --i) add_mix(program);
    for (std::size_t p = plain_pieces(); p < state_.pieces().size() && kept.makes; ++p) {
      const Operand made{add(program, type_of(p), ValueKind::state_out, static_cast<PieceId>(p)), 1};
      program.ops.push_back({&mix_spec, {}, {any_local()}, {made}, label_});
      if (chance(0.7)) ++label_.layer;
    }
  }

  // A tensor whose pieces are all as the step found them is read whole; otherwise one piece.
  Operand any_state() {
    const auto tensor = static_cast<TensorId>(between(0, plain_tensors_ - 1));
    const std::size_t first = index_of(state_.first_piece(tensor));
    const auto count = static_cast<std::size_t>(state_.piece_count(tensor));
    bool whole = true;
    for (std::size_t i = 1; i < count; ++i) {
      whole = whole && index_of(versions_[first + i]) == index_of(versions_[first]) + i;
    }
    if (whole) return {versions_[first], static_cast<std::int32_t>(count)};
    return {versions_[first + static_cast<std::size_t>(between(0, static_cast<int>(count) - 1))], 1};
  }

  void make_program(Program& program, bool changes_state, const Kept& kept) {
    enter_state(program);
    locals_.clear();
    locals_.push_back({add(program, {DType::f32, 4, 64}, ValueKind::input), 1});
    const int ops = between(20, 70);
    const int kept_at = kept.uses || kept.makes ? between(0, ops - 1) : -1;
    for (int i = 0; i < ops; ++i) {
      if (i == kept_at) add_kept(program, kept);
      if (chance(0.35)) ++label_.layer;
      if (changes_state && chance(0.15)) {
        if (updates_apart_) add_output(program);
        for (int updates = updates_apart_ ? between(1, 3) : 1; updates > 0; --updates) add_update(program);
        label_.layer += updates_apart_ ? 1 : 0;
      } else if (chance(0.1)) {
        add_parts(program);
      } else if (chance(0.2)) {
        add_in_place(program);
      } else {
        add_mix(program);
      }
    }
    Op last{&mix_spec, {}, {any_local()}, {{add(program, {DType::f32, 1, 64}, ValueKind::output), 1}}, label_};
    program.ops.push_back(last);
  }

  // Old values are read too, so that lifetimes are of all lengths.
  Operand any_local() {
    const int count = static_cast<int>(locals_.size());
    const int from = chance(0.7) ? std::max(0, count - 4) : 0;
    return locals_[static_cast<std::size_t>(between(from, count - 1))];
  }

  ValueType any_type() { return {DType::f32, chance(0.3) ? between(40, 400) : between(1, 40), 64}; }

  void add_mix(Program& program) {
    Op op{&mix_spec, {}, {}, {}, label_};
    for (int i = between(0, 2); i >= 0; --i) op.reads.push_back(any_local());
    for (int i = between(0, 2); i > 0; --i) op.reads.push_back(any_state());
    if (chance(0.1)) op.reads.push_back({});
    for (int i = between(0, 1); i >= 0; --i) {
      op.writes.push_back({add(program, any_type(), ValueKind::local), 1});
      locals_.push_back(op.writes.back());
    }
    program.ops.push_back(op);
  }

  void add_in_place(Program& program) {
    const Operand read = any_local();
    const Operand write{static_cast<ValueId>(program.values.size()), read.count};
    for (std::size_t k = 0; k < static_cast<std::size_t>(read.count); ++k) {
      add(program, program.values[index_of(read.first) + k].type, ValueKind::local);
    }
    // The old value is mostly not read again; the layout must notice when it is.
    if (chance(0.8)) std::erase(locals_, read);
    locals_.push_back(write);
    program.ops.push_back({&in_place_spec, {}, {read}, {write}, label_});
  }

  // One matrix whose parts several ops write.
  void add_parts(Program& program) {
    const Operand whole{static_cast<ValueId>(program.values.size()), between(2, 4)};
    for (std::int32_t i = 0; i < whole.count; ++i) add(program, any_type(), ValueKind::local);
    for (std::size_t i = 0; i < static_cast<std::size_t>(whole.count); ++i) {
      const Operand part{static_cast<ValueId>(index_of(whole.first) + i), 1};
      program.ops.push_back({&mix_spec, {}, {any_local()}, {part}, label_});
      if (chance(0.3)) ++label_.layer;
    }
    locals_.push_back(whole);
  }

  void add_output(Program& program) {
    output_ = {add(program, {DType::f32, 1, 64}, ValueKind::output), 1};
    program.ops.push_back({&mix_spec, {}, {any_local()}, {output_}, label_});
    ++label_.layer;
  }

  // `with`: read beside what is updated.
  void add_update(Program& program, const Operand& with = {}) {
    const auto piece = static_cast<std::size_t>(between(0, static_cast<int>(versions_.size()) - 1));
    const Operand old{versions_[piece], 1};
    versions_[piece] = add(program, program.value(old.first).type, ValueKind::state_out, static_cast<PieceId>(piece));
    Op op{&update_spec, {}, {old, any_local()}, {{versions_[piece], 1}}, label_};
    if (updates_apart_) op.reads.push_back(output_);
    if (with.exists()) op.reads.push_back(with);
    program.ops.push_back(std::move(op));
  }

  std::mt19937_64 random_;
  bool updates_apart_ = false;
  Operand output_;
  State state_;
  Program step_;
  Program look_;
  Program next_;
  Program flush_;
  int plain_tensors_ = 0;
  std::int64_t page_bytes_ = 0;
  Label label_{Phase::forward, 0, -1, "part", 0};
  std::vector<ValueId> versions_;  // the newest value of each piece
  std::vector<Operand> locals_;
};

// Page counts from the smallest to where nothing moves.
inline std::vector<std::int64_t> page_counts(std::int64_t smallest, std::int64_t in_memory) {
  std::vector<std::int64_t> counts;
  for (const int share : {0, 2, 5, 10, 20, 35, 50, 75, 90, 100}) {
    const std::int64_t count = smallest + std::max<std::int64_t>(0, in_memory - smallest) * share / 100;
    if (counts.empty() || counts.back() != count) counts.push_back(count);
  }
  return counts;
}

}  // namespace spillway
