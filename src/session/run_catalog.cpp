#include "session/run_catalog.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "executor/run_events.h"
#include "formats/atomic_file.h"

namespace spillway {
namespace {

// The label at which a bundle is first written; null for state.
using Creators = std::vector<const Label*>;

Creators creators_of(const PlannedPrograms& planned) {
  Creators creators(planned.layout.bundles.size(), nullptr);
  for (std::size_t p = 0; p < planned.programs.size(); ++p) {
    const ProgramLayout& layout = planned.layout.programs[p];
    for (std::size_t s = 0; s < layout.uses.size(); ++s) {
      const auto first_op = static_cast<std::size_t>(layout.segments.begin[s]);
      for (const Use& use : layout.uses[s]) {
        if (use.creates && creators[index_of(use.bundle)] == nullptr)
          creators[index_of(use.bundle)] = &planned.programs[p]->ops[first_op].label;
      }
    }
  }
  return creators;
}

MemoryTag tag_of(const Tensor& tensor) {
  if (tensor.trainable) return MemoryTag::weights;
  return tensor.name.starts_with("grad.") ? MemoryTag::gradients : MemoryTag::optimizer;
}

MemoryTag tag_of(const Label* creator) {
  const bool backward = creator != nullptr && (creator->phase == Phase::backward || creator->phase == Phase::update);
  return backward ? MemoryTag::gradients : MemoryTag::activations;
}

// The names of the pieces that a state bundle holds: the first, and how many more.
std::vector<std::string> state_names(const Layout& layout, const State& state) {
  std::vector<std::string> names(layout.bundles.size());
  std::vector<std::int32_t> pieces(layout.bundles.size(), 0);
  for (std::size_t p = 0; p < layout.piece_places.size(); ++p) {
    const std::size_t bundle = index_of(layout.piece_places[p].bundle);
    if (pieces[bundle]++ == 0) names[bundle] = state.describe(static_cast<PieceId>(p));
  }
  for (std::size_t b = 0; b < names.size(); ++b) {
    if (pieces[b] > 1) names[b] += fmt::format(" and {} more", pieces[b] - 1);
  }
  return names;
}

std::vector<CatalogOp> ops_of(const Program& program, Catalog& catalog) {
  std::vector<CatalogOp> ops;
  for (const Op& op : program.ops) {
    ops.push_back({catalog.intern(op.spec->name), catalog.intern(name_of(op.label.phase)),
                   catalog.intern(op.label.part), op.label.layer, op.label.micro_batch, op.label.index});
  }
  return ops;
}

BundleId bundle_of(const Plan& plan, const Instr& instr) {
  return instr.stays.empty() ? BundleId::none : plan.stays[index_of(instr.stays.front())].bundle;
}

CatalogPlan plan_of(const Plan& plan, const Layout& layout, std::string_view name) {
  CatalogPlan of;
  of.name = name;
  of.program = plan.program;
  for (const Instr& instr : plan.instrs) {
    CatalogInstr& row = of.instrs.emplace_back();
    row.lane = lane_of(instr.lane);
    row.subject = instr.kind == Instr::Kind::run ? static_cast<std::int32_t>(instr.op)
                                                 : static_cast<std::int32_t>(bundle_of(plan, instr));
    for (const StayId stay : instr.stays) row.stays.push_back(static_cast<std::int32_t>(stay));
  }
  for (const Stay& stay : plan.stays) {
    CatalogStay& row = of.stays.emplace_back();
    row.bundle = static_cast<std::int32_t>(stay.bundle);
    row.bytes = std::ssize(stay.pages) * layout.page_bytes;
    row.memory = stay.memory == MemoryId::device ? EventMemory::device : EventMemory::host;
  }
  for (const StayId stay : plan.entry.stays) of.stays[index_of(stay)].at_entry = true;
  for (const StayId stay : plan.exit.stays) of.stays[index_of(stay)].at_exit = true;
  return of;
}

// Turns a timeline into the events that the executor would have recorded.
class Replay {
 public:
  Replay(const Plan& plan, std::uint8_t number, const Layout& layout, const Timeline& timeline)
      : plan_(plan), number_(number), layout_(layout), timeline_(timeline), position_(plan.instrs.size(), 0) {
    for (const auto& lane : plan.lanes) {
      for (std::size_t i = 0; i < lane.size(); ++i) position_[index_of(lane[i])] = static_cast<std::int32_t>(i);
    }
  }

  std::vector<Event> events() {
    add({.step = 1, .kind = EventKind::step_begin}, 0);
    add({.value = 1, .step = 1, .kind = EventKind::plan_begin, .lane = EventLane::compute}, 0);
    double free_at = 0;
    for (const InstrId id : plan_.lanes[static_cast<std::size_t>(LaneId::compute)]) {
      add_wait(id, free_at);
      add_op(id);
      free_at = timeline_.ends[index_of(id)];
    }
    for (const LaneId lane : {LaneId::read, LaneId::write, LaneId::up, LaneId::down}) {
      for (const InstrId id : plan_.lanes[static_cast<std::size_t>(lane)]) add_move(id);
    }
    add({.value = 1, .step = 1, .kind = EventKind::plan_end, .lane = EventLane::compute}, free_at);
    add({.value = std::bit_cast<std::int64_t>(std::numeric_limits<double>::quiet_NaN()),
         .step = 1,
         .kind = EventKind::step_end},
        timeline_.seconds);
    std::stable_sort(events_.begin(), events_.end(),
                     [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
    return std::move(events_);
  }

 private:
  void add(Event event, double seconds) {
    event.time_ns = static_cast<std::int64_t>(seconds * 1e9);
    event.plan = number_;
    event.run = 1;
    events_.push_back(event);
  }

  Event of(InstrId id, EventKind kind) const {
    const Instr& instr = plan_.instrs[index_of(id)];
    return {.step = 1, .instr = static_cast<std::int32_t>(id), .kind = kind, .lane = lane_of(instr.lane)};
  }

  void add_stays(InstrId id) {
    const Instr& instr = plan_.instrs[index_of(id)];
    for (const StayId stay : instr.begins) {
      Event event = of(id, EventKind::stay_begin);
      event.subject = static_cast<std::int32_t>(plan_.stays[index_of(stay)].bundle);
      event.value = std::ssize(plan_.stays[index_of(stay)].pages) * layout_.page_bytes;
      event.other = static_cast<std::int32_t>(stay);
      add(event, timeline_.starts[index_of(id)]);
    }
  }

  void add_op(InstrId id) {
    add_stays(id);
    for (const EventKind kind : {EventKind::op_begin, EventKind::op_end}) {
      Event event = of(id, kind);
      event.subject = static_cast<std::int32_t>(plan_.instrs[index_of(id)].op);
      add(event, (kind == EventKind::op_begin ? timeline_.starts : timeline_.ends)[index_of(id)]);
    }
  }

  // The move among those that an instruction names that ended last; with `of_disk` only those of the disk.
  InstrId last_move(InstrId id, bool of_disk) const {
    InstrId last = InstrId::none;
    for (const InstrId wait : plan_.instrs[index_of(id)].after) {
      const Instr& instr = plan_.instrs[index_of(wait)];
      if (instr.kind == Instr::Kind::run || (of_disk && is_copy(instr.kind))) continue;
      if (last == InstrId::none || timeline_.ends[index_of(wait)] > timeline_.ends[index_of(last)]) last = wait;
    }
    return last;
  }

  // It began after the op before it had ended: for the move among those it names that ended last. Where that is a copy
  // which began when a move of the disk had ended, until then it was that one.
  void add_wait(InstrId id, double free_at) {
    const double until = timeline_.starts[index_of(id)];
    if (until - free_at < 1e-9) return;
    const InstrId last = last_move(id, false);
    if (last == InstrId::none) return;
    const double begun = timeline_.starts[index_of(last)];
    const bool copies = is_copy(plan_.instrs[index_of(last)].kind) && begun > free_at;
    const InstrId before = copies ? last_move(last, true) : InstrId::none;
    if (before == InstrId::none || timeline_.ends[index_of(before)] <= free_at) {
      return add_wait_for(id, last, free_at, until);
    }
    const double split = std::min(timeline_.ends[index_of(before)], until);
    add_wait_for(id, before, free_at, split);
    if (until > split) add_wait_for(id, last, split, until);
  }

  void add_wait_for(InstrId id, InstrId move, double from, double until) {
    const Instr& awaited = plan_.instrs[index_of(move)];
    for (const EventKind kind : {EventKind::wait_begin, EventKind::wait_end}) {
      Event event = of(id, kind);
      event.lane = lane_of(awaited.lane);
      event.value = position_[index_of(move)];
      event.subject = static_cast<std::int32_t>(bundle_of(plan_, awaited));
      add(event, kind == EventKind::wait_begin ? from : until);
    }
  }

  void add_move(InstrId id) {
    add_stays(id);
    const BundleId bundle = bundle_of(plan_, plan_.instrs[index_of(id)]);
    if (bundle == BundleId::none) return;
    for (const EventKind kind : {EventKind::move_submit, EventKind::move_complete}) {
      Event event = of(id, kind);
      event.value = layout_.bundles[index_of(bundle)].bytes;
      event.subject = static_cast<std::int32_t>(bundle);
      event.other = kind == EventKind::move_submit ? 1 : position_[index_of(id)];
      if (is_of_disk(plan_.instrs[index_of(id)].kind)) event.disk = 0;
      add(event, (kind == EventKind::move_submit ? timeline_.starts : timeline_.ends)[index_of(id)]);
    }
  }

  const Plan& plan_;
  std::uint8_t number_;
  const Layout& layout_;
  const Timeline& timeline_;
  std::vector<std::int32_t> position_;  // by instruction, in its lane
  std::vector<Event> events_;
};

}  // namespace

std::vector<MemoryTag> bundle_tags(const PlannedPrograms& planned, const State& state) {
  const Layout& layout = planned.layout;
  const Creators creators = creators_of(planned);
  std::vector<MemoryTag> tags;
  for (const Label* creator : creators) tags.push_back(tag_of(creator));
  for (std::size_t p = 0; p < layout.piece_places.size(); ++p) {
    tags[index_of(layout.piece_places[p].bundle)] = tag_of(state.tensor(state.piece(static_cast<PieceId>(p)).tensor));
  }
  return tags;
}

Catalog catalog_of(const PlannedPrograms& planned, const State& state, std::span<const std::string_view> names) {
  const Layout& layout = planned.layout;
  Catalog catalog;
  catalog.arena_bytes = planned.plans.front().pages * layout.page_bytes;
  catalog.device_bytes = planned.plans.front().device_pages * layout.page_bytes;
  for (const Program* program : planned.programs) catalog.programs.push_back(ops_of(*program, catalog));
  const std::vector<MemoryTag> tags = bundle_tags(planned, state);
  const Creators creators = creators_of(planned);
  std::vector<std::string> states = state_names(layout, state);
  for (std::size_t b = 0; b < layout.bundles.size(); ++b) {
    const Bundle& bundle = layout.bundles[b];
    std::string what = std::move(states[b]);
    if (what.empty()) {
      what = std::string(name_of(tags[b]));
      if (creators[b] != nullptr) what += " of " + describe(*creators[b]);
    }
    catalog.bundles.push_back({tags[b], bundle.state, bundle.bytes, std::move(what)});
  }
  for (std::size_t p = 0; p < planned.plans.size(); ++p) {
    catalog.plans.push_back(plan_of(planned.plans[p], layout, p < names.size() ? names[p] : "plan"));
  }
  return catalog;
}

std::vector<Event> events_of(const Plan& plan, std::uint8_t number, const Layout& layout, const Timeline& timeline) {
  return Replay(plan, number, layout, timeline).events();
}

void write_trace_file(const std::filesystem::path& path, const Catalog& catalog, const VisitEvents& events,
                      const TraceOptions& options) {
  TemporaryFile file(path);
  std::string text;
  std::int64_t offset = 0;
  const auto flush = [&] {
    file.file().write(offset, std::as_bytes(std::span(text)));
    offset += std::ssize(text);
    text.clear();
  };
  write_trace(catalog, events, options, [&](std::string_view piece) {
    text += piece;
    if (std::ssize(text) > mib) flush();
  });
  flush();
  file.keep();
}

}  // namespace spillway
