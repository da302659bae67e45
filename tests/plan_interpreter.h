// A second reading of what a plan does: pages hold tags instead of numbers, and lanes advance at random within what the
// waits allow. Every instruction has a beginning and an end, and what it uses must be right at both.
//
// Like the pool, it gives each bundle one address: a page lies at one address at a time, and whatever lay there before
// can no longer be reached.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace spillway {

class PlanInterpreter {
 public:
  PlanInterpreter(const Plan& plan, const Layout& layout, const Program& program)
      : plan_(plan),
        layout_(layout),
        program_(program),
        places_(layout.programs[static_cast<std::size_t>(plan.program)].places),
        cells_per_page_(layout.page_bytes / cell_bytes) {
    contents_at_start_.resize(layout.bundles.size());
    for (std::size_t b = 0; b < layout.bundles.size(); ++b) {
      contents_at_start_[b].assign(cells(layout.bundles[b].bytes), nothing);
    }
    contents_at_end_ = contents_at_start_;
    for (std::size_t v = 0; v < program.values.size(); ++v) {
      if (program.values[v].piece == PieceId::none) continue;
      const bool found = program.values[v].kind == ValueKind::state_in;
      if (found) note_version(contents_at_start_, v);
      note_version(contents_at_end_, v);  // versions of a piece have ascending ids
    }
  }

  // Empty when the run ends with every version where the exit says; otherwise what went wrong first.
  std::string run(std::uint64_t seed) {
    start_over(seed);
    if (!enter()) return error_;
    while (error_.empty()) {
      const std::optional<Event> event = choose();
      if (!event) break;
      event->starts ? start(event->instr) : finish(event->instr);
    }
    if (!error_.empty()) return error_;
    if (left_ > 0) return fmt::format("{} instructions wait for each other", left_);
    leave();
    return error_;
  }

 private:
  static constexpr std::int64_t cell_bytes = 256;
  static constexpr std::int32_t nothing = -1;
  using Cells = std::vector<std::int32_t>;  // of one bundle: the value each holds, or `nothing`, or a mark
  enum class Progress : std::uint8_t { waiting, under_way, ended };
  struct Event {
    std::size_t instr = 0;
    bool starts = false;
  };

  static std::size_t cells(std::int64_t bytes) { return static_cast<std::size_t>(bytes / cell_bytes); }
  // What lies in bytes that an instruction is writing.
  static std::int32_t mark(std::size_t instr) { return -2 - static_cast<std::int32_t>(instr); }

  void note_version(std::vector<Cells>& contents, std::size_t value) {
    const Place& place = places_[value];
    if (place.bundle == BundleId::none) return;
    Cells& bundle = contents[index_of(place.bundle)];
    const std::size_t begin = cells(place.offset_bytes);
    std::fill_n(bundle.begin() + static_cast<std::ptrdiff_t>(begin), cells(program_.values[value].type.bytes()),
                static_cast<std::int32_t>(value));
  }

  void start_over(std::uint64_t seed) {
    random_.seed(seed);
    for (double& weight : weights_) weight = std::array{0.001, 1.0, 1000.0}[random_() % 3];
    error_.clear();
    pages_.assign(static_cast<std::size_t>(plan_.pages), Cells(static_cast<std::size_t>(cells_per_page_), nothing));
    where_.assign(pages_.size(), -1);
    holder_.assign(static_cast<std::size_t>(layout_.address_bytes / layout_.page_bytes), -1);
    disk_.assign(layout_.bundles.size(), std::nullopt);
    for (std::int32_t b = 0; b < layout_.state_bundles; ++b) {
      disk_[static_cast<std::size_t>(b)] = contents_at_start_[static_cast<std::size_t>(b)];
    }
    progress_.assign(plan_.instrs.size(), Progress::waiting);
    sampled_.assign(plan_.instrs.size(), {});
    next_ = {};
    done_ = {};
    left_ = plan_.instrs.size();
    position_.assign(plan_.instrs.size(), 0);
    for (const auto& lane : plan_.lanes) {
      for (std::size_t i = 0; i < lane.size(); ++i) position_[index_of(lane[i])] = i;
    }
  }

  void fail(std::string error) {
    if (error_.empty()) error_ = std::move(error);
  }

  bool enter() {
    for (const StayId id : plan_.entry.stays) {
      const BundleId bundle = plan_.stays[index_of(id)].bundle;
      if (!attach(id)) return false;
      disk_[index_of(bundle)].reset();  // older than memory
      for (std::size_t c = 0; c < contents_at_start_[index_of(bundle)].size(); ++c) {
        if (std::int32_t* cell = at(bundle, c)) *cell = contents_at_start_[index_of(bundle)][c];
      }
    }
    return error_.empty();
  }

  void leave() {
    std::vector<bool> held(layout_.bundles.size(), false);
    for (const StayId id : plan_.exit.stays) {
      const Stay& stay = plan_.stays[index_of(id)];
      held[index_of(stay.bundle)] = true;
      for (std::size_t i = 0; i < stay.pages.size(); ++i) {
        const std::int64_t address = layout_.bundles[index_of(stay.bundle)].address / layout_.page_bytes;
        if (where_[index_of(stay.pages[i])] != address + static_cast<std::int64_t>(i)) {
          return fail(fmt::format("bundle {} is not on its pages at the exit", index_of(stay.bundle)));
        }
      }
      if (sample(stay.bundle) != contents_at_end_[index_of(stay.bundle)]) {
        return fail(fmt::format("bundle {} is wrong in memory at the exit", index_of(stay.bundle)));
      }
    }
    std::vector<bool> at_entry(layout_.bundles.size(), false);
    for (const StayId id : plan_.entry.stays) at_entry[index_of(plan_.stays[index_of(id)].bundle)] = true;
    if (held != at_entry) return fail("the exit holds other bundles than the entry");
    for (std::size_t b = 0; b < static_cast<std::size_t>(layout_.state_bundles); ++b) {
      if (!held[b] && disk_[b] != contents_at_end_[b]) return fail(fmt::format("bundle {} is wrong on disk", b));
    }
  }

  // Moves the pages of a stay to the address of its bundle.
  bool attach(StayId id) {
    const Stay& stay = plan_.stays[index_of(id)];
    std::int64_t slot = layout_.bundles[index_of(stay.bundle)].address / layout_.page_bytes;
    if (static_cast<std::int64_t>(stay.pages.size()) != layout_.pages_of(stay.bundle)) {
      fail(fmt::format("stay {} has {} pages", index_of(id), stay.pages.size()));
      return false;
    }
    for (const PageId page : stay.pages) {
      if (index_of(page) >= pages_.size()) {
        fail(fmt::format("there is no page {}", index_of(page)));
        return false;
      }
      if (std::int32_t& left = holder_[static_cast<std::size_t>(slot)]; left >= 0) {
        where_[static_cast<std::size_t>(left)] = -1;
        left = -1;
      }
      if (where_[index_of(page)] >= 0) holder_[static_cast<std::size_t>(where_[index_of(page)])] = -1;
      where_[index_of(page)] = slot;
      holder_[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(page);
      std::fill(pages_[index_of(page)].begin(), pages_[index_of(page)].end(), nothing);
      ++slot;
    }
    return true;
  }

  // The cell of a bundle through its address; null, with a failure, when no page lies there.
  std::int32_t* at(BundleId bundle, std::size_t cell) {
    const auto per_page = static_cast<std::size_t>(cells_per_page_);
    const auto first = static_cast<std::size_t>(layout_.bundles[index_of(bundle)].address / layout_.page_bytes);
    const std::int32_t page = holder_[first + cell / per_page];
    if (page < 0) {
      fail(fmt::format("bundle {} has no page at its address", index_of(bundle)));
      return nullptr;
    }
    return &pages_[static_cast<std::size_t>(page)][cell % per_page];
  }

  Cells sample(BundleId bundle) {
    Cells all(contents_at_start_[index_of(bundle)].size(), nothing);
    for (std::size_t c = 0; c < all.size(); ++c) {
      const std::int32_t* cell = at(bundle, c);
      if (cell == nullptr) return {};
      all[c] = *cell;
    }
    return all;
  }

  bool is_done(InstrId id) const {
    return position_[index_of(id)] < done_[static_cast<std::size_t>(plan_.instrs[index_of(id)].lane)];
  }

  // One of all events possible now.
  std::optional<Event> choose() {
    std::vector<Event> events;
    std::vector<double> weights;
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      const auto& order = plan_.lanes[lane];
      for (std::size_t i = done_[lane]; i < next_[lane]; ++i) {
        if (progress_[index_of(order[i])] != Progress::under_way) continue;
        events.push_back({index_of(order[i]), false});
        weights.push_back(weights_[2 * lane]);
      }
      if (next_[lane] == order.size()) continue;
      if (lane == static_cast<std::size_t>(LaneId::compute) && done_[lane] < next_[lane]) continue;
      const Instr& instr = plan_.instrs[index_of(order[next_[lane]])];
      if (!std::all_of(instr.after.begin(), instr.after.end(), [&](InstrId id) { return is_done(id); })) continue;
      events.push_back({index_of(order[next_[lane]]), true});
      weights.push_back(weights_[2 * lane + 1]);
    }
    if (events.empty()) return std::nullopt;
    return events[std::discrete_distribution<std::size_t>(weights.begin(), weights.end())(random_)];
  }

  void start(std::size_t i) {
    const Instr& instr = plan_.instrs[i];
    progress_[i] = Progress::under_way;
    ++next_[static_cast<std::size_t>(instr.lane)];
    for (const StayId id : instr.begins) {
      if (!attach(id)) return;
    }
    const BundleId bundle = instr.stays.empty() ? BundleId::none : plan_.stays[index_of(instr.stays.front())].bundle;
    if (instr.kind == Instr::Kind::run) {
      check_reads(i, false);
      for_each_cell(instr, true, [&](std::int32_t& cell, std::int32_t) { cell = mark(i); });
    } else if (instr.kind == Instr::Kind::read) {
      if (!disk_[index_of(bundle)]) return fail(fmt::format("instruction {} reads what is not on disk", i));
      sampled_[i] = *disk_[index_of(bundle)];
      for (std::size_t c = 0; c < sampled_[i].size(); ++c) {
        if (std::int32_t* cell = at(bundle, c)) *cell = mark(i);
      }
    } else {
      sampled_[i] = sample(bundle);
      disk_[index_of(bundle)].reset();
    }
  }

  void finish(std::size_t i) {
    const Instr& instr = plan_.instrs[i];
    progress_[i] = Progress::ended;
    --left_;
    const auto lane = static_cast<std::size_t>(instr.lane);
    while (done_[lane] < plan_.lanes[lane].size() &&
           progress_[index_of(plan_.lanes[lane][done_[lane]])] == Progress::ended) {
      ++done_[lane];
    }
    const BundleId bundle = instr.stays.empty() ? BundleId::none : plan_.stays[index_of(instr.stays.front())].bundle;
    if (instr.kind == Instr::Kind::run) {
      check_reads(i, true);
      for_each_cell(instr, true, [&](std::int32_t& cell, std::int32_t value) {
        if (cell != mark(i)) fail(fmt::format("instruction {} was written over while it wrote %{}", i, value));
        cell = value;
      });
    } else if (instr.kind == Instr::Kind::read) {
      if (disk_[index_of(bundle)] != sampled_[i]) fail(fmt::format("the disk changed under instruction {}", i));
      for (std::size_t c = 0; c < sampled_[i].size(); ++c) {
        std::int32_t* cell = at(bundle, c);
        if (cell == nullptr) return;
        if (*cell != mark(i)) return fail(fmt::format("instruction {} was written over while it read", i));
        *cell = sampled_[i][c];
      }
    } else {
      if (sample(bundle) != sampled_[i]) fail(fmt::format("what instruction {} writes changed under it", i));
      if (disk_[index_of(bundle)]) fail(fmt::format("two instructions write bundle {}", index_of(bundle)));
      disk_[index_of(bundle)] = sampled_[i];
    }
  }

  // At the end of an op the reads whose bytes its writes take hold its mark.
  void check_reads(std::size_t i, bool at_end) {
    for_each_cell(plan_.instrs[i], false, [&](std::int32_t& cell, std::int32_t value) {
      if (cell == value || (at_end && cell == mark(i))) return;
      fail(fmt::format("instruction {} reads %{} where {} lies", i, value, cell));
    });
  }

  template <typename Visit>
  void for_each_cell(const Instr& instr, bool writes, const Visit& visit) {
    const Op& op = program_.ops[index_of(instr.op)];
    for (const Operand& operand : writes ? op.writes : op.reads) {
      for (std::size_t k = 0; operand.exists() && k < static_cast<std::size_t>(operand.count); ++k) {
        const std::size_t value = index_of(operand.first) + k;
        const Place& place = places_[value];
        if (place.bundle == BundleId::none) continue;
        const std::size_t begin = cells(place.offset_bytes);
        for (std::size_t c = begin; c < begin + cells(program_.values[value].type.bytes()); ++c) {
          std::int32_t* cell = at(place.bundle, c);
          if (cell == nullptr) return;
          visit(*cell, static_cast<std::int32_t>(value));
        }
      }
    }
  }

  const Plan& plan_;
  const Layout& layout_;
  const Program& program_;
  const std::vector<Place>& places_;
  std::int64_t cells_per_page_ = 0;
  std::vector<Cells> contents_at_start_;  // by bundle
  std::vector<Cells> contents_at_end_;

  std::mt19937_64 random_;
  std::array<double, 2 * lane_count> weights_{};  // by lane: of an end, of a beginning
  std::string error_;
  std::vector<Cells> pages_;
  std::vector<std::int64_t> where_;   // by page: its part of the address range, or -1
  std::vector<std::int32_t> holder_;  // by part of the address range: its page, or -1
  std::vector<std::optional<Cells>> disk_;
  std::vector<Progress> progress_;
  std::vector<Cells> sampled_;
  std::vector<std::size_t> position_;
  std::array<std::size_t, lane_count> next_{};
  std::array<std::size_t, lane_count> done_{};
  std::size_t left_ = 0;
};

}  // namespace spillway
