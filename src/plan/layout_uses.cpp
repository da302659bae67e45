#include "plan/layout_uses.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

// The ops of segment s: from the first up to and without the last.
std::pair<std::int32_t, std::int32_t> ops_of(const Segments& segments, std::int32_t s) {
  return {segments.begin[static_cast<std::size_t>(s)], segments.begin[static_cast<std::size_t>(s) + 1]};
}

// All but what depends on lives: Use::creates and Use::ends of state.
void note_touches(const Program& program, const Layout& whole, ProgramLayout& layout) {
  layout.uses.resize(static_cast<std::size_t>(layout.segments.count()));
  std::vector<std::pair<std::int32_t, std::size_t>> seen(whole.bundles.size(), {-1, 0});  // last segment, use
  for (std::int32_t s = 0; s < layout.segments.count(); ++s) {
    auto& uses = layout.uses[static_cast<std::size_t>(s)];
    const auto [begin, end] = ops_of(layout.segments, s);
    for (std::int32_t i = begin; i < end; ++i) {
      const auto touch = [&](std::size_t v, bool writes) {
        const BundleId bundle = layout.places[v].bundle;
        if (bundle == BundleId::none) return;
        auto& [segment, at] = seen[index_of(bundle)];
        if (segment != s) {
          const bool creates = segment < 0 && !whole.bundles[index_of(bundle)].state;
          at = uses.size();
          uses.push_back({bundle, i, i, creates, false, false});
          segment = s;
        }
        uses[at].last_op = i;
        if (writes) uses[at].writes = true;
      };
      const Op& op = program.ops[static_cast<std::size_t>(i)];
      for (const Operand& read : op.reads) for_each_value(read, [&](std::size_t v) { touch(v, false); });
      for (const Operand& write : op.writes) for_each_value(write, [&](std::size_t v) { touch(v, true); });
    }
  }
  for (std::size_t b = static_cast<std::size_t>(whole.state_bundles); b < seen.size(); ++b) {
    const auto& [segment, at] = seen[b];
    if (segment >= 0) layout.uses[static_cast<std::size_t>(segment)][at].ends = true;
  }
}

void note_output_makers(const Program& program, ProgramLayout& layout) {
  std::vector<OpId> makers(program.values.size(), OpId::none);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    OpId last = OpId::none;
    for (const Operand& read : program.ops[i].reads) {
      for_each_value(read, [&](std::size_t v) { last = std::max(last, makers[v]); });
    }
    layout.output_makers.push_back(last);
    for (const Operand& write : program.ops[i].writes) {
      for_each_value(write, [&](std::size_t v) {
        if (program.values[v].kind == ValueKind::output) makers[v] = static_cast<OpId>(i);
      });
    }
  }
}

// By piece: what a Program leaves is needed, unless it says otherwise or no commit holds it and it is not touched.
std::vector<bool> needed_after(const Program& program, const State& state) {
  std::vector<bool> needed(state.pieces().size());
  for (std::size_t piece = 0; piece < needed.size(); ++piece) {
    needed[piece] = state.tensor(state.pieces()[piece].tensor).committed;
  }
  for (const Value& value : program.values) {
    if (value.piece != PieceId::none) needed[index_of(value.piece)] = true;
  }
  for (const PieceId piece : program.consumed) needed[index_of(piece)] = false;
  return needed;
}

// Which pieces are needed at a point of the Program, and so which state bundles.
class Needs {
 public:
  Needs(const Program& program, const State& state, const Layout& layout)
      : program_(program),
        layout_(layout),
        needed_(needed_after(program, state)),
        count_(static_cast<std::size_t>(layout.state_bundles), 0) {
    for (std::size_t piece = 0; piece < needed_.size(); ++piece) count_of(piece) += needed_[piece] ? 1 : 0;
  }

  void set(const Operand& operand, bool now) {
    for_each_value(operand, [&](std::size_t v) {
      if (program_.values[v].piece == PieceId::none) return;
      const std::size_t piece = index_of(program_.values[v].piece);
      if (needed_[piece] != now) count_of(piece) += now ? 1 : -1;
      needed_[piece] = now;
    });
  }

  bool none_in(BundleId bundle) const { return count_[index_of(bundle)] == 0; }

  // By state bundle.
  std::vector<bool> dead() const {
    std::vector<bool> dead;
    for (const std::int32_t pieces : count_) dead.push_back(pieces == 0);
    return dead;
  }

 private:
  std::int32_t& count_of(std::size_t piece) { return count_[index_of(layout_.piece_places[piece].bundle)]; }

  const Program& program_;
  const Layout& layout_;
  std::vector<bool> needed_;         // by piece
  std::vector<std::int32_t> count_;  // of needed pieces, by state bundle
};

// Backward over the segments: a piece is needed from where it is written, or from the beginning, until its last read.
void note_lives_of_state(const Program& program, const State& state, const Layout& whole, ProgramLayout& layout) {
  Needs needs(program, state, whole);
  layout.dead_on_exit = needs.dead();
  for (std::int32_t s = layout.segments.count() - 1; s >= 0; --s) {
    auto& uses = layout.uses[static_cast<std::size_t>(s)];
    const auto [begin, end] = ops_of(layout.segments, s);
    for (Use& use : uses) {
      if (whole.bundles[index_of(use.bundle)].state) use.ends = needs.none_in(use.bundle);
    }
    for (std::int32_t i = end - 1; i >= begin; --i) {
      const Op& op = program.ops[static_cast<std::size_t>(i)];
      for (const Operand& write : op.writes) needs.set(write, false);
      for (const Operand& read : op.reads) needs.set(read, true);
    }
    for (Use& use : uses) {
      if (whole.bundles[index_of(use.bundle)].state) use.creates = needs.none_in(use.bundle);
    }
  }
  layout.dead_on_entry = needs.dead();
}

}  // namespace

void note_uses(const Program& program, const State& state, Layout& layout, std::size_t at) {
  ProgramLayout& own = layout.programs[at];
  note_touches(program, layout, own);
  note_output_makers(program, own);
  note_lives_of_state(program, state, layout, own);
}

}  // namespace spillway
