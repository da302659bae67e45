#include "plan/layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "machine/machine.h"
#include "plan/layout_uses.h"
#include "program/spec.h"

namespace spillway {
namespace {

constexpr std::int64_t value_alignment_bytes = 256;
constexpr std::int64_t bundle_granule_bytes = 4096;  // direct I/O

// Storage: the bytes of one piece of state, or of one local value and those that take its place after it. Storages that
// must lie adjacent form a class.
struct Storage {
  std::int64_t bytes = 0;
  std::int32_t parent = 0;  // union-find over adjacency
};

struct Touch {
  std::int32_t program = 0;
  std::int32_t segment = 0;
  bool operator==(const Touch&) const = default;
  bool operator<(const Touch& other) const {
    return std::pair(program, segment) < std::pair(other.program, other.segment);
  }
};

// A class of adjacent storages with what the planner needs to know of it.
struct Class {
  std::vector<std::int32_t> storages;  // in address order
  std::int64_t bytes = 0;
  std::vector<Touch> touches;  // ascending, distinct
  std::int32_t first_op = -1;  // for classes of one segment
  std::int32_t last_op = -1;
};

bool in_pages(const Value& value) { return value.kind != ValueKind::input && value.kind != ValueKind::output; }

class LayoutMaker {
 public:
  LayoutMaker(std::span<const Program* const> programs, const State& state) : programs_(programs), state_(state) {
    for (std::size_t p = 0; p < state.pieces().size(); ++p) add_storage(state.bytes_of(static_cast<PieceId>(p)));
    state_storages_ = static_cast<std::int32_t>(storages_.size());
    for (const Program* program : programs) {
      segments_.emplace_back(*program);
      value_storages_.push_back(storages_of(*program));
    }
    for (std::size_t p = 0; p < programs.size(); ++p) join_adjacent(p);
    make_classes();
    for (std::size_t p = 0; p < programs.size(); ++p) note_touches(p);
  }

  // Groups smaller than `small_bytes` share one bundle, so that a vector of a few hundred numbers has no page of its
  // own. May be called again.
  Layout make(std::int64_t page_bytes, std::int64_t small_bytes) {
    small_bytes_ = small_bytes;
    storage_places_.assign(storages_.size(), {});
    for (const Segments& segments : segments_) layout_.programs.push_back({segments, {}, {}, {}, {}});
    make_state_bundles();
    for (std::size_t p = 0; p < programs_.size(); ++p) make_local_bundles(static_cast<std::int32_t>(p));
    for (std::size_t p = 0; p < programs_.size(); ++p) place_values(p);
    for (std::int32_t s = 0; s < state_storages_; ++s) {
      const Place& place = storage_places_[static_cast<std::size_t>(s)];
      layout_.piece_places.push_back(place);
      const bool committed = state_.tensor(state_.piece(static_cast<PieceId>(s)).tensor).committed;
      if (committed) layout_.bundles[index_of(place.bundle)].committed = true;
    }
    for (std::size_t p = 0; p < programs_.size(); ++p) note_uses(*programs_[p], state_, layout_, p);
    layout_.page_bytes = page_bytes;
    assign_addresses();
    return std::exchange(layout_, {});
  }

 private:
  std::int32_t add_storage(std::int64_t bytes) {
    storages_.push_back({bytes, static_cast<std::int32_t>(storages_.size())});
    return static_cast<std::int32_t>(storages_.size()) - 1;
  }

  std::int32_t root(std::int32_t storage) {
    while (storages_[static_cast<std::size_t>(storage)].parent != storage) {
      auto& parent = storages_[static_cast<std::size_t>(storage)].parent;
      parent = storages_[static_cast<std::size_t>(parent)].parent;
      storage = parent;
    }
    return storage;
  }

  // Gives every value its storage, sharing where the op permits it and nothing reads the old value later.
  std::vector<std::int32_t> storages_of(const Program& program) {
    std::vector<std::int32_t> last_read(program.values.size(), -1);
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      for (const Operand& read : program.ops[i].reads) {
        for_each_value(read, [&](std::size_t v) { last_read[v] = static_cast<std::int32_t>(i); });
      }
    }
    std::vector<std::int32_t> storage(program.values.size(), -1);
    for (std::size_t v = 0; v < program.values.size(); ++v) {
      const Value& value = program.values[v];
      if (value.piece != PieceId::none) storage[v] = static_cast<std::int32_t>(index_of(value.piece));
    }
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const Op& op = program.ops[i];
      for (std::size_t w = 0; w < op.writes.size(); ++w) {
        const Operand from = shared_read(program, op, static_cast<int>(w), last_read, static_cast<std::int32_t>(i));
        std::size_t source = from.exists() ? index_of(from.first) : 0;
        for_each_value(op.writes[w], [&](std::size_t v) {
          if (storage[v] < 0 && in_pages(program.values[v])) {
            storage[v] = from.exists() ? storage[source] : add_storage(program.values[v].type.bytes());
          }
          ++source;
        });
      }
      check_versions(program, op, last_read, static_cast<std::int32_t>(i));
    }
    return storage;
  }

  // The read whose storage write `w` may take: local, of the same bytes value by value, read here for the last time and
  // by one operand only, and not taken by an earlier write of the op.
  static Operand shared_read(const Program& program, const Op& op, int w, const std::vector<std::int32_t>& last_read,
                             std::int32_t at) {
    for (const Share& share : op.spec->shares) {
      if (share.write != w || share.read >= static_cast<int>(op.reads.size())) continue;
      const Operand& read = op.reads[static_cast<std::size_t>(share.read)];
      const Operand& write = op.writes[static_cast<std::size_t>(w)];
      if (!read.exists() || read.count != write.count) continue;
      const auto same = std::count_if(op.reads.begin(), op.reads.end(), [&](const Operand& other) {
        return other.exists() && other.first == read.first;
      });
      bool fits = same == 1 && !taken_before(op, w, share.read);
      for (std::size_t k = 0; k < static_cast<std::size_t>(read.count) && fits; ++k) {
        const Value& from = program.values[index_of(read.first) + k];
        const Value& to = program.values[index_of(write.first) + k];
        fits = from.kind == ValueKind::local && to.kind == ValueKind::local && from.type.bytes() == to.type.bytes() &&
               last_read[index_of(read.first) + k] == at;
      }
      if (fits) return read;
    }
    return {};
  }

  static bool taken_before(const Op& op, int w, int read) {
    return std::any_of(op.spec->shares.begin(), op.spec->shares.end(),
                       [&](const Share& other) { return other.read == read && other.write < w; });
  }

  // A new version of a piece takes the place of the old one, so nothing may read the old one afterwards.
  static void check_versions(const Program& program, const Op& op, const std::vector<std::int32_t>& last_read,
                             std::int32_t at) {
    for (const Operand& write : op.writes) {
      for_each_value(write, [&](std::size_t v) {
        if (program.values[v].kind != ValueKind::state_out) return;
        for (const Operand& read : op.reads) {
          for_each_value(read, [&](std::size_t r) {
            if (program.values[r].piece != program.values[v].piece) return;
            SPILLWAY_CHECK(last_read[r] == at, "value %{} is read by op {} after op {} replaced its piece", r,
                           last_read[r], at);
          });
        }
      });
    }
  }

  void join_adjacent(std::size_t p) {
    for (const Op& op : programs_[p]->ops) {
      for (const auto* operands : {&op.reads, &op.writes}) {
        for (const Operand& operand : *operands) {
          if (!operand.exists() || operand.count == 1) continue;
          const std::int32_t first = value_storages_[p][index_of(operand.first)];
          for_each_value(operand, [&](std::size_t v) {
            const std::int32_t a = root(first);
            const std::int32_t b = root(value_storages_[p][v]);
            storages_[static_cast<std::size_t>(std::max(a, b))].parent = std::min(a, b);
          });
        }
      }
    }
  }

  void make_classes() {
    class_of_.assign(storages_.size(), -1);
    for (std::size_t s = 0; s < storages_.size(); ++s) {
      const auto at = static_cast<std::size_t>(root(static_cast<std::int32_t>(s)));
      if (class_of_[at] < 0) {
        class_of_[at] = static_cast<std::int32_t>(classes_.size());
        classes_.emplace_back();
      }
      class_of_[s] = class_of_[at];
      Class& members = classes_[static_cast<std::size_t>(class_of_[s])];
      members.storages.push_back(static_cast<std::int32_t>(s));
      members.bytes += storages_[s].bytes;
    }
  }

  void note_touches(std::size_t p) {
    const Program& program = *programs_[p];
    std::int32_t segment = 0;
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const auto at = static_cast<std::int32_t>(i);
      while (at >= segments_[p].begin[static_cast<std::size_t>(segment) + 1]) ++segment;
      const Touch touch{static_cast<std::int32_t>(p), segment};
      for (const auto* operands : {&program.ops[i].reads, &program.ops[i].writes}) {
        for (const Operand& operand : *operands) {
          for_each_value(operand, [&](std::size_t v) {
            if (value_storages_[p][v] < 0) return;
            Class& members = class_of(value_storages_[p][v]);
            if (members.touches.empty() || members.touches.back() != touch) members.touches.push_back(touch);
            if (members.first_op < 0) members.first_op = at;
            members.last_op = at;
          });
        }
      }
    }
  }

  Class& class_of(std::int32_t storage) {
    return classes_[static_cast<std::size_t>(class_of_[static_cast<std::size_t>(storage)])];
  }

  BundleId add_bundle(bool state) {
    layout_.bundles.push_back({0, 0, state, false});
    return static_cast<BundleId>(layout_.bundles.size() - 1);
  }

  void place_class(const Class& members, BundleId bundle, std::int64_t offset_bytes) {
    for (const std::int32_t s : members.storages) {
      storage_places_[static_cast<std::size_t>(s)] = {bundle, offset_bytes};
      offset_bytes += storages_[static_cast<std::size_t>(s)].bytes;
    }
    Bundle& whole = layout_.bundles[index_of(bundle)];
    whole.bytes = std::max(whole.bytes, round_up(offset_bytes, bundle_granule_bytes));
  }

  // Classes with equal touches side by side.
  void make_side_by_side(const std::vector<const Class*>& classes, bool state) {
    struct Group {
      std::int64_t bytes = 0;
      BundleId bundle = BundleId::none;
    };
    std::map<std::vector<Touch>, Group> groups;
    for (const Class* members : classes) {
      groups[members->touches].bytes += round_up(members->bytes, value_alignment_bytes);
    }
    BundleId smalls = BundleId::none;
    std::map<BundleId, std::int64_t> end_bytes;
    for (const Class* members : classes) {
      Group& group = groups[members->touches];
      if (group.bundle == BundleId::none) {
        const bool small = group.bytes < small_bytes_;
        if (small && smalls == BundleId::none) smalls = add_bundle(state);
        group.bundle = small ? smalls : add_bundle(state);
      }
      place_class(*members, group.bundle, end_bytes[group.bundle]);
      end_bytes[group.bundle] += round_up(members->bytes, value_alignment_bytes);
    }
  }

  // What no commit holds stays apart from what one does: it comes and goes while the other stands.
  void make_state_bundles() {
    for (const bool committed : {true, false}) {
      std::vector<const Class*> touched;
      for (const Class& members : classes_) {
        const std::int32_t piece = members.storages.front();
        if (piece >= state_storages_ || members.touches.empty()) continue;
        const Tensor& tensor = state_.tensor(state_.piece(static_cast<PieceId>(piece)).tensor);
        if (tensor.committed == committed) touched.push_back(&members);
      }
      make_side_by_side(touched, true);
    }
    for (const Class& members : classes_) {  // pieces no Program touches stay apart: they are never moved together
      if (members.storages.front() < state_storages_ && members.touches.empty())
        place_class(members, add_bundle(true), 0);
    }
    layout_.state_bundles = static_cast<std::int32_t>(layout_.bundles.size());
  }

  void make_local_bundles(std::int32_t program) {
    std::vector<const Class*> moving;
    std::map<std::int32_t, std::vector<const Class*>> scratch;  // by segment
    for (const Class& members : classes_) {
      if (members.storages.front() < state_storages_ || members.touches.empty()) continue;
      if (members.touches.front().program != program) continue;
      if (members.touches.size() == 1) {
        scratch[members.touches.front().segment].push_back(&members);
      } else {
        moving.push_back(&members);
      }
    }
    make_side_by_side(moving, false);
    for (auto& [segment, classes] : scratch) pack_scratch(classes);
  }

  // Largest first, each at the lowest offset where nothing alive at the same time lies.
  void pack_scratch(std::vector<const Class*>& classes) {
    std::stable_sort(classes.begin(), classes.end(),
                     [](const Class* a, const Class* b) { return a->bytes > b->bytes; });
    struct Placed {
      std::int64_t begin, end;
      const Class* members;
    };
    std::vector<Placed> placed;  // ascending by begin
    const BundleId bundle = add_bundle(false);
    for (const Class* members : classes) {
      std::int64_t offset = 0;
      for (const Placed& other : placed) {
        const bool alive_together =
            other.members->first_op <= members->last_op && members->first_op <= other.members->last_op;
        if (alive_together && offset < other.end && other.begin < offset + members->bytes) {
          offset = round_up(other.end, value_alignment_bytes);
        }
      }
      const Placed mine{offset, offset + members->bytes, members};
      placed.insert(std::upper_bound(placed.begin(), placed.end(), mine,
                                     [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
                    mine);
      place_class(*members, bundle, offset);
    }
  }

  void place_values(std::size_t p) {
    auto& places = layout_.programs[p].places;
    places.resize(programs_[p]->values.size());
    for (std::size_t v = 0; v < places.size(); ++v) {
      const std::int32_t storage = value_storages_[p][v];
      if (storage >= 0) places[v] = storage_places_[static_cast<std::size_t>(storage)];
    }
    for (const Op& op : programs_[p]->ops) {
      for (const auto* operands : {&op.reads, &op.writes}) {
        for (const Operand& operand : *operands) check_adjacent(p, operand);
      }
    }
  }

  void check_adjacent(std::size_t p, const Operand& operand) const {
    if (!operand.exists() || operand.count == 1) return;
    const auto& places = layout_.programs[p].places;
    std::int64_t end_bytes = places[index_of(operand.first)].offset_bytes;
    for_each_value(operand, [&](std::size_t v) {
      SPILLWAY_CHECK(places[v].bundle == places[index_of(operand.first)].bundle && places[v].offset_bytes == end_bytes,
                     "value %{} does not lie next to the one before it", v);
      end_bytes += programs_[p]->values[v].type.bytes();
    });
  }

  void assign_addresses() {
    std::int64_t address = 0;
    for (Bundle& bundle : layout_.bundles) {
      bundle.address = address;
      address += round_up(bundle.bytes, layout_.page_bytes);
    }
    layout_.address_bytes = address;
  }

  std::span<const Program* const> programs_;
  const State& state_;
  Layout layout_;
  std::vector<Segments> segments_;  // by program
  std::vector<Storage> storages_;
  std::int32_t state_storages_ = 0;
  std::int64_t small_bytes_ = 0;
  std::vector<std::vector<std::int32_t>> value_storages_;  // by program and value; -1: outside the pages
  std::vector<std::int32_t> class_of_;                     // by storage
  std::vector<Class> classes_;
  std::vector<Place> storage_places_;
};

}  // namespace

Segments::Segments(std::int32_t count) {
  for (std::int32_t s = 0; s <= count; ++s) begin.push_back(s);
}

Segments::Segments(const Program& program) {
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (i == 0 || !(program.ops[i].label == program.ops[i - 1].label)) begin.push_back(static_cast<std::int32_t>(i));
  }
  begin.push_back(static_cast<std::int32_t>(program.ops.size()));
}

Layout lay_out(std::span<const Program* const> programs, const State& state, std::int64_t page_bytes) {
  LayoutMaker maker(programs, state);
  if (page_bytes == 0) page_bytes = page_bytes_for(largest_working_set_bytes(maker.make(4 * kib, 0)));
  return maker.make(page_bytes, page_bytes / 8);
}

std::int64_t largest_working_set_bytes(const Layout& layout) {
  std::int64_t largest = 0;
  for (const ProgramLayout& program : layout.programs) {
    for (const auto& uses : program.uses) {
      std::int64_t bytes = 0;
      for (const Use& use : uses) bytes += layout.bundles[index_of(use.bundle)].bytes;
      largest = std::max(largest, bytes);
    }
  }
  return largest;
}

}  // namespace spillway
