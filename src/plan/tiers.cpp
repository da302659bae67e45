#include "plan/tiers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "plan/direct.h"
#include "plan/placement.h"
#include "plan/schedule.h"

namespace spillway {
namespace {

std::vector<bool> held_dirty(const Plan& plan, const Boundary& boundary, const Layout& layout, MemoryId memory) {
  std::vector<bool> dirty(layout.bundles.size(), false);
  for (std::size_t i = 0; i < boundary.stays.size(); ++i) {
    const Stay& stay = plan.stays[index_of(boundary.stays[i])];
    if (stay.memory == memory && boundary.dirty[i]) dirty[index_of(stay.bundle)] = true;
  }
  return dirty;
}

// A Program as the device sees it: what runs below it uses no pages here.
struct DeviceSide {
  Layout layout;
  std::vector<LaneId> lanes;  // by segment

  DeviceSide(const Layout& whole, std::int32_t program, const std::vector<bool>& below) {
    layout.page_bytes = whole.page_bytes;
    layout.bundles = whole.bundles;
    layout.address_bytes = whole.address_bytes;
    layout.state_bundles = whole.state_bundles;
    layout.programs.push_back(whole.programs[static_cast<std::size_t>(program)]);
    for (const bool is_below : below) lanes.push_back(is_below ? LaneId::update : LaneId::compute);
    for (std::size_t s = 0; s < below.size(); ++s) {
      for (Use& use : layout.programs.front().uses[s]) use.below = below[s];
    }
    note_leaving();
  }

 private:
  // Backward over the segments: by bundle, whether its next use is below. After the last one comes the next step's.
  void note_leaving() {
    ProgramLayout& program = layout.programs.front();
    std::vector<bool> below(layout.bundles.size(), false);
    const auto walk = [&] {
      for (auto uses = program.uses.rbegin(); uses != program.uses.rend(); ++uses) {
        for (Use& use : *uses) {
          use.leaves = !use.below && !use.ends && below[index_of(use.bundle)];
          below[index_of(use.bundle)] = use.below;
        }
      }
    };
    walk();
    for (std::size_t b = 0; b < below.size(); ++b) {
      const bool again = b < static_cast<std::size_t>(layout.state_bundles) && !program.dead_on_entry[b];
      below[b] = below[b] && again;
    }
    walk();
  }
};

// What a device's plan asks of the host as a Program in the host's memory: a segment for each copy and for each that
// runs below, in the order of the plan.
struct HostSide {
  Layout layout;
  std::vector<LaneId> lanes;  // by segment

  // `device` is a plan of one memory, in which what moves does so by reads and writes.
  HostSide(const Layout& whole, std::int32_t program, const Plan& device) {
    layout.page_bytes = whole.page_bytes;
    layout.bundles = whole.bundles;
    layout.address_bytes = whole.address_bytes;
    layout.state_bundles = whole.state_bundles;
    const ProgramLayout& real = whole.programs[static_cast<std::size_t>(program)];
    layout.programs.push_back({Segments(0), {}, {}, {}, {}});
    std::size_t segment = 0;
    for (const Instr& instr : device.instrs) {
      if (is_of_disk(instr.kind)) {
        add_copy(device.stays[index_of(instr.stays.front())].bundle, instr.kind == Instr::Kind::write);
      } else if (instr.lane == LaneId::update) {
        const auto op = static_cast<std::int32_t>(index_of(instr.op));
        while (op >= real.segments.begin[segment + 1]) ++segment;
        if (op == real.segments.begin[segment]) add_below(real, segment);
      }
    }
    note_lives(real, device);
  }

 private:
  void add_copy(BundleId bundle, bool down) {
    const std::int32_t op = layout.programs.front().segments.begin.back();
    layout.programs.front().segments.begin.push_back(op + 1);
    layout.programs.front().uses.push_back({{bundle, op, op, down, down, false}});
    lanes.push_back(down ? LaneId::down : LaneId::up);
  }

  void add_below(const ProgramLayout& real, std::size_t segment) {
    std::vector<std::int32_t>& begin = layout.programs.front().segments.begin;
    const std::int32_t first = real.segments.begin[segment];
    const std::int32_t shift = begin.back() - first;
    begin.push_back(shift + real.segments.begin[segment + 1]);
    std::vector<Use>& uses = layout.programs.front().uses.emplace_back(real.uses[segment]);
    for (Use& use : uses) use.first_op += shift, use.last_op += shift;
    lanes.push_back(LaneId::update);
  }

  // What is copied down anew was of no use since the last copy up, nor is what the device holds newer at an end.
  void note_lives(const ProgramLayout& real, const Plan& device) {
    ProgramLayout& program = layout.programs.front();
    // Held dirty by the device in this plan, its bytes here are of none.
    const std::vector<bool> newer_on_entry = held_dirty(device, device.entry, layout, MemoryId::host);
    const std::vector<bool> newer_on_exit = held_dirty(device, device.exit, layout, MemoryId::host);
    std::vector<bool> needed;  // by bundle: what it holds after the segment looked at
    for (std::size_t b = 0; b < layout.bundles.size(); ++b) {
      const bool dead = !layout.bundles[b].state || real.dead_on_exit[b] || newer_on_exit[b];
      needed.push_back(!dead);
      if (layout.bundles[b].state) program.dead_on_exit.push_back(dead);
    }
    for (auto uses = program.uses.rbegin(); uses != program.uses.rend(); ++uses) {
      for (Use& use : *uses) {
        use.ends = !needed[index_of(use.bundle)];
        needed[index_of(use.bundle)] = !use.creates;
      }
    }
    for (std::size_t b = 0; b < static_cast<std::size_t>(layout.state_bundles); ++b) {
      program.dead_on_entry.push_back(!needed[b] || real.dead_on_entry[b] || newer_on_entry[b]);
    }
  }
};

class Merger {
 public:
  Merger(std::int32_t program, const Plan& device, const Plan& host) : device_(device), host_(host) {
    plan_.program = program;
    plan_.pages = host.pages;
    plan_.device_pages = device.pages;
    plan_.traffic = host.traffic;
    plan_.up_bytes = device.traffic.read_bytes;
    plan_.down_bytes = device.traffic.write_bytes;
    plan_.peak_pages = host.peak_pages;
    plan_.peak_device_pages = device.peak_pages;
    plan_.local_slots = host.local_slots;
    of_device_.resize(device.instrs.size());
    of_host_.resize(host.instrs.size());
    add_stays();
  }

  // What both plans have stands where both have it; all else keeps its order, and so every wait looks back.
  Plan merge(const Layout& layout) {
    for (std::size_t i = 0; i < device_.instrs.size(); ++i) {
      const Instr& instr = device_.instrs[i];
      if (instr.kind == Instr::Kind::commit) continue;  // the host commits
      of_device_[i] = static_cast<InstrId>(plan_.instrs.size());
      if (instr.lane == LaneId::compute) {
        add({instr.kind, instr.lane, instr.op, instr.stays, instr.begins, device_waits(instr)});
      } else {
        add_of_both(i);
      }
    }
    for (; next_ < host_.instrs.size(); ++next_) add_of_host();
    mark_firsts(plan_, layout);
    return std::move(plan_);
  }

 private:
  void add_stays() {
    for (Stay stay : device_.stays) {
      stay.memory = MemoryId::device;
      for (PageId& page : stay.pages) page = static_cast<PageId>(static_cast<std::int64_t>(page) + host_.pages);
      plan_.stays.push_back(std::move(stay));
    }
    plan_.stays.insert(plan_.stays.end(), host_.stays.begin(), host_.stays.end());
    plan_.entry = both(device_.entry, host_.entry);
    plan_.exit = both(device_.exit, host_.exit);
  }

  Boundary both(const Boundary& device, const Boundary& host) const {
    Boundary boundary = device;
    for (const StayId stay : host.stays) boundary.stays.push_back(host_stay(stay));
    boundary.dirty.insert(boundary.dirty.end(), host.dirty.begin(), host.dirty.end());
    return boundary;
  }

  StayId host_stay(StayId stay) const {
    return static_cast<StayId>(static_cast<std::int64_t>(stay) + std::ssize(device_.stays));
  }

  std::vector<InstrId> device_waits(const Instr& instr) const {
    std::vector<InstrId> waits;
    for (const InstrId wait : instr.after) waits.push_back(of_device_[index_of(wait)]);
    return waits;
  }

  void add(Instr instr) {
    std::sort(instr.after.begin(), instr.after.end());
    instr.after.erase(std::unique(instr.after.begin(), instr.after.end()), instr.after.end());
    plan_.lanes[static_cast<std::size_t>(instr.lane)].push_back(static_cast<InstrId>(plan_.instrs.size()));
    plan_.instrs.push_back(std::move(instr));
  }

  // A copy, with both its sides, or what runs below. It is the host's next run; moves of the host up to it come first.
  void add_of_both(std::size_t at) {
    for (; host_.instrs[next_].kind != Instr::Kind::run; ++next_) add_of_host();
    const Instr& above = device_.instrs[at];
    of_device_[at] = static_cast<InstrId>(plan_.instrs.size());
    Instr instr = mapped(host_.instrs[next_]);
    of_host_[next_++] = of_device_[at];
    if (above.kind != Instr::Kind::run)
      instr.kind = above.kind == Instr::Kind::read ? Instr::Kind::up : Instr::Kind::down;
    instr.op = above.op;
    instr.stays.insert(instr.stays.begin(), above.stays.begin(), above.stays.end());
    instr.begins.insert(instr.begins.begin(), above.begins.begin(), above.begins.end());
    for (const InstrId wait : device_waits(above)) instr.after.push_back(wait);
    add(std::move(instr));
  }

  void add_of_host() {
    of_host_[next_] = static_cast<InstrId>(plan_.instrs.size());
    add(mapped(host_.instrs[next_]));
  }

  Instr mapped(Instr instr) const {
    for (StayId& stay : instr.stays) stay = host_stay(stay);
    for (StayId& stay : instr.begins) stay = host_stay(stay);
    for (InstrId& wait : instr.after) wait = of_host_[index_of(wait)];
    return instr;
  }

  const Plan& device_;
  const Plan& host_;
  Plan plan_;
  std::size_t next_ = 0;  // of the host's instructions
  std::vector<InstrId> of_device_;
  std::vector<InstrId> of_host_;
};

}  // namespace

TierResidents tier_residents_of(const Plan& plan) {
  return {residents_of(plan, MemoryId::device), residents_of(plan, MemoryId::host)};
}

Plan make_tiered_plan(const Layout& layout, std::int32_t program, const TierPages& pages, const PlanRequest& request,
                      const TierResidents* boundary) {
  PlanRequest of_device = request;
  of_device.entry = boundary != nullptr ? &boundary->device : nullptr;
  std::optional<DeviceSide> split;
  if (request.below != nullptr) {
    split.emplace(layout, program, *request.below);
    of_device.lanes = &split->lanes;
  }
  of_device.unplaced = true;
  Plan device = split ? make_plan(split->layout, 0, pages.device, of_device)
                      : make_plan(layout, program, pages.device, of_device);
  place_stays(device, layout);
  const HostSide side(layout, program, device);
  PlanRequest of_host = request;
  of_host.entry = boundary != nullptr ? &boundary->host : nullptr;
  of_host.lanes = &side.lanes;
  const Plan host = make_plan(side.layout, 0, pages.host, of_host);
  Plan plan = Merger(program, device, host).merge(layout);
  return request.direct ? with_direct_moves(std::move(plan), layout) : plan;
}

std::int64_t smallest_host_pages(const Layout& layout) {
  std::int64_t pages = visit_pages(layout);
  for (std::size_t b = 0; b < layout.bundles.size(); ++b) {
    pages = std::max(pages, layout.pages_of(static_cast<BundleId>(b)));
  }
  return pages;
}

std::int64_t smallest_host_pages(const Layout& layout, std::int32_t program, const std::vector<bool>& below) {
  std::int64_t smallest = smallest_host_pages(layout);
  for (std::size_t s = 0; s < below.size(); ++s) {
    std::int64_t pages = 0;
    for (const Use& use : layout.programs[static_cast<std::size_t>(program)].uses[s]) {
      pages += below[s] ? layout.pages_of(use.bundle) : 0;
    }
    smallest = std::max(smallest, pages);
  }
  return smallest;
}

std::vector<bool> dead_below_on_entry(const Plan& plan, const Layout& layout) {
  std::vector<bool> dead(static_cast<std::size_t>(layout.state_bundles), false);
  if (plan.device_pages == 0) return dead;
  const ProgramLayout& program = layout.programs[static_cast<std::size_t>(plan.program)];
  dead = held_dirty(plan, plan.exit, layout, MemoryId::device);  // where nothing is said of it below
  for (std::size_t b = 0; b < program.dead_on_exit.size(); ++b) dead[b] = dead[b] || program.dead_on_exit[b];
  std::vector<bool> known(layout.bundles.size(), false);
  for (const Instr& instr : plan.instrs) {
    if (instr.lane == LaneId::compute) continue;
    for (const StayId id : instr.stays) {
      // What a move of the disk does with the host's memory is the host's affair; a direct read finds the newest below.
      if (is_of_disk(instr.kind) && plan.stays[index_of(id)].memory == MemoryId::host) continue;
      const std::size_t b = index_of(plan.stays[index_of(id)].bundle);
      if (known[b]) continue;
      known[b] = true;
      const bool begins = std::find(instr.begins.begin(), instr.begins.end(), id) != instr.begins.end();
      dead[b] = instr.kind == Instr::Kind::down || (instr.kind == Instr::Kind::run && begins);
    }
  }
  const std::vector<bool> newer = held_dirty(plan, plan.entry, layout, MemoryId::device);
  dead.resize(static_cast<std::size_t>(layout.state_bundles));
  for (std::size_t b = 0; b < dead.size(); ++b) dead[b] = dead[b] || newer[b] || program.dead_on_entry[b];
  return dead;
}

}  // namespace spillway
