#include "program/recompute.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "program/spec.h"

namespace spillway {
namespace {

constexpr std::string_view attention_part = "attention";

class Recomputer {
 public:
  Recomputer(Program& program, const Recompute& what) : program_(program), what_(what) {}

  void run() {
    note_uses();
    choose();
    old_ops_ = std::move(program_.ops);
    program_.ops.clear();
    for (std::size_t begin = 0; begin < old_ops_.size();) {
      std::size_t end = begin + 1;
      while (end < old_ops_.size() && old_ops_[end].label == old_ops_[begin].label) ++end;
      record_segment({old_ops_.data() + begin, end - begin});
      begin = end;
    }
  }

 private:
  bool is_chosen(const Label& label, Phase phase) const {
    return label.phase == phase && label.layer >= 0 && label.layer < what_.layers;
  }

  // Whether values that go from `from` to `to` stay within what is made again as one.
  bool stays_within(const Label& from, const Label& to) const {
    if (to.phase == Phase::backward) return true;
    if (from.phase != to.phase || from.layer != to.layer) return false;
    return what_.kind == RecomputeKind::block || from.part == to.part;
  }

  void note_uses() {
    makers_.assign(program_.values.size(), -1);
    wanted_.assign(program_.values.size(), false);
    leaves_.assign(program_.values.size(), false);
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      for (const Operand& read : op.reads) {
        for_each_value(read, [&](std::size_t v) {
          if (op.label.phase == Phase::backward) wanted_[v] = true;
          if (makers_[v] < 0) return;
          const Op& maker = program_.ops[static_cast<std::size_t>(makers_[v])];
          if (!stays_within(maker.label, op.label)) leaves_[v] = true;
        });
      }
      if (!is_chosen(op.label, Phase::forward)) continue;
      for (const Operand& write : op.writes) {
        for_each_value(write, [&](std::size_t v) { makers_[v] = static_cast<std::int32_t>(i); });
      }
    }
  }

  void choose() {
    made_again_.assign(program_.ops.size(), false);
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      if (!is_chosen(op.label, Phase::forward)) continue;
      made_again_[i] = writes_may_go(op) && (is_in_whole(op) || (!op.spec->multiplies && reads_are_there(op)));
    }
  }

  bool is_in_whole(const Op& op) const {
    return what_.kind == RecomputeKind::block ||
           (what_.kind == RecomputeKind::attention && op.label.part == attention_part);
  }

  bool writes_may_go(const Op& op) const {
    bool may_go = true;
    for (const Operand& write : op.writes) {
      for_each_value(
          write, [&](std::size_t v) { may_go = may_go && !leaves_[v] && program_.values[v].kind == ValueKind::local; });
    }
    return may_go;
  }

  bool reads_are_there(const Op& op) const {
    bool there = true;
    for (const Operand& read : op.reads) {
      for_each_value(read, [&](std::size_t v) {
        if (program_.values[v].kind == ValueKind::local) there = there && (wanted_[v] || is_made_again(v));
      });
    }
    return there;
  }

  bool is_made_again(std::size_t value) const {
    return makers_[value] >= 0 && made_again_[static_cast<std::size_t>(makers_[value])];
  }

  void record_segment(std::span<const Op> ops) {
    if (!is_chosen(ops.front().label, Phase::backward)) {
      program_.ops.insert(program_.ops.end(), ops.begin(), ops.end());
      return;
    }
    for (const Op& op : ops) {
      for (const Operand& read : op.reads) make(read, op.label, false);
    }
    for (const Op& op : ops) {
      for (const Operand& read : op.reads) make(read, op.label, true);
      Op changed = op;
      for (Operand& read : changed.reads) read = replaced(read);
      program_.ops.push_back(std::move(changed));
    }
  }

  // Records again what makes this operand and was not yet: ops of other parts, or with `of_this_part` all that is left.
  void make(const Operand& operand, const Label& label, bool of_this_part) {
    for_each_value(operand, [&](std::size_t v) {
      if (v >= makers_.size() || !is_made_again(v) || fresh_.contains(v)) return;
      const Op& op = old_ops_[static_cast<std::size_t>(makers_[v])];
      for (const Operand& read : op.reads) make(read, label, of_this_part);
      const bool this_part = op.label.part == label.part && op.label.index == label.index;
      if (this_part != of_this_part) return;
      Op again = op;
      again.repeats = true;
      if (this_part) {
        again.label = label;
      } else {
        again.label.phase = Phase::recompute;
      }
      for (Operand& read : again.reads) read = replaced(read);
      for (Operand& write : again.writes) write = renew(write);
      program_.ops.push_back(std::move(again));
    });
  }

  Operand renew(const Operand& write) {
    const Operand fresh{static_cast<ValueId>(program_.values.size()), write.count};
    for_each_value(write, [&](std::size_t v) {
      fresh_[v] = program_.values.size();
      const Value value = program_.values[v];
      program_.values.push_back(value);
    });
    return fresh;
  }

  Operand replaced(const Operand& read) const {
    if (!read.exists()) return read;
    const auto found = fresh_.find(index_of(read.first));
    if (found == fresh_.end()) return read;
    const Operand fresh{static_cast<ValueId>(found->second), read.count};
    std::size_t next = found->second;
    for_each_value(read, [&](std::size_t v) {
      SPILLWAY_CHECK(fresh_.at(v) == next, "value %{} is made again apart from its neighbours", v);
      ++next;
    });
    return fresh;
  }

  Program& program_;
  const Recompute& what_;
  std::vector<std::int32_t> makers_;  // by value: the forward op of a chosen layer that writes it, or -1
  std::vector<bool> wanted_;          // by value: read in backward
  std::vector<bool> leaves_;          // by value: read in forward outside of what is made again as one
  std::vector<bool> made_again_;      // by op
  std::vector<Op> old_ops_;
  std::unordered_map<std::size_t, std::size_t> fresh_;  // the value that stands for a value from here on
};

}  // namespace

std::string_view name_of(RecomputeKind kind) {
  switch (kind) {
    case RecomputeKind::none: return "none";
    case RecomputeKind::cheap: return "cheap";
    case RecomputeKind::attention: return "attention";
    case RecomputeKind::block: return "block";
  }
  return "?";
}

void recompute(Program& program, const Recompute& what) {
  if (what.kind == RecomputeKind::none || what.layers <= 0) return;
  Recomputer(program, what).run();
}

}  // namespace spillway
