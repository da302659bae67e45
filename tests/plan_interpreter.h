// A second reading of what plans do when they follow each other: pages hold tags instead of numbers, and lanes advance
// at random within what the waits allow, into the next plan too. Every instruction has a beginning and an end, and what
// it uses must be right at both.
//
// Like the pools, it gives each bundle one address in each memory: a page lies at one address at a time, and whatever
// lay there before can no longer be reached.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "plan/trail.h"

namespace spillway {

class PlanInterpreter {
 public:
  // Runs `plans` one after the other; each must be one that may follow the one before.
  PlanInterpreter(const std::vector<const Plan*>& plans, const Layout& layout,
                  const std::vector<const Program*>& programs)
      : layout_(layout), cells_per_page_(layout.page_bytes / cell_bytes) {
    contents_at_start_.resize(layout.bundles.size());
    for (std::size_t b = 0; b < layout.bundles.size(); ++b) {
      contents_at_start_[b].assign(cells(layout.bundles[b].bytes), nothing);
    }
    std::int32_t tags = 0;
    std::vector<std::int32_t> newest(layout.piece_places.size());  // the tag of each piece
    for (std::int32_t& tag : newest) tag = tags++;
    for (const Plan* plan : plans) {
      Run run{*plan,
              *programs[static_cast<std::size_t>(plan->program)],
              layout.programs[static_cast<std::size_t>(plan->program)].places,
              PlanWaits(*plan, layout),
              {},
              {}};
      for (std::size_t v = 0; v < run.program.values.size(); ++v) {
        const Value& value = run.program.values[v];
        const bool found = value.kind == ValueKind::state_in;
        run.tags.push_back(found ? newest[index_of(value.piece)] : tags++);
        if (found && runs_.empty()) note_version(contents_at_start_, run, v);
      }
      contents_at_end_ = runs_.empty() ? contents_at_start_ : contents_at_end_;
      for (std::size_t v = 0; v < run.program.values.size(); ++v) {
        if (run.program.values[v].piece == PieceId::none) continue;
        newest[index_of(run.program.values[v].piece)] = run.tags[v];  // versions of a piece have ascending ids
        note_version(contents_at_end_, run, v);
      }
      run.contents_at_end = contents_at_end_;
      runs_.push_back(std::move(run));
    }
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      for (std::size_t i = 0; i < runs_[r].plan.instrs.size(); ++i) {
        lanes_[static_cast<std::size_t>(runs_[r].plan.instrs[i].lane)].push_back(steps_.size());
        steps_.push_back({r, static_cast<InstrId>(i)});
      }
    }
  }

  // Empty when the runs end with every version where the exit says; otherwise what went wrong first.
  std::string run(std::uint64_t seed) {
    start_over(seed);
    if (!enter()) return error_;
    while (error_.empty()) {
      const std::optional<Event> event = choose();
      if (!event) break;
      event->starts ? start(event->step) : finish(event->step);
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
    std::size_t step = 0;
    bool starts = false;
  };
  struct Run {
    const Plan& plan;
    const Program& program;
    const std::vector<Place>& places;
    PlanWaits waits;
    std::vector<std::int32_t> tags;  // by value: what its cells hold
    std::vector<Cells> contents_at_end;
  };
  // One instruction of one run.
  struct Step {
    std::size_t run = 0;
    InstrId instr = InstrId::none;
  };

  static std::size_t cells(std::int64_t bytes) { return static_cast<std::size_t>(bytes / cell_bytes); }
  // What lies in bytes that an instruction is writing.
  static std::int32_t mark(std::size_t instr) { return -2 - static_cast<std::int32_t>(instr); }

  static void note_version(std::vector<Cells>& contents, const Run& run, std::size_t value) {
    const Place& place = run.places[value];
    if (place.bundle == BundleId::none) return;
    Cells& bundle = contents[index_of(place.bundle)];
    const std::size_t begin = cells(place.offset_bytes);
    std::fill_n(bundle.begin() + static_cast<std::ptrdiff_t>(begin), cells(run.program.values[value].type.bytes()),
                run.tags[value]);
  }

  void start_over(std::uint64_t seed) {
    random_.seed(seed);
    for (double& weight : weights_) weight = std::array{0.001, 1.0, 1000.0}[random_() % 3];
    error_.clear();
    const Plan& first = runs_.front().plan;
    pages_.assign(static_cast<std::size_t>(first.all_pages()),
                  Cells(static_cast<std::size_t>(cells_per_page_), nothing));
    where_.assign(pages_.size(), -1);
    holder_.assign(memory_count * static_cast<std::size_t>(layout_.address_bytes / layout_.page_bytes), -1);
    disk_.assign(layout_.bundles.size(), std::nullopt);
    const auto& dead = layout_.programs[static_cast<std::size_t>(first.program)].dead_on_entry;
    for (std::size_t b = 0; b < static_cast<std::size_t>(layout_.state_bundles); ++b) {
      if (!dead[b]) disk_[b] = contents_at_start_[b];
    }
    progress_.assign(steps_.size(), Progress::waiting);
    sampled_.assign(steps_.size(), {});
    next_ = {};
    done_ = {};
    left_ = steps_.size();
    lay_out_runs();
  }

  // Where each run finds its pages: those of its entry where the run before left them.
  void lay_out_runs() {
    Trail trail(layout_.bundles.size(), pages_.size());
    followings_.clear();
    std::map<Residence, std::vector<PageId>> held;
    std::array<std::int64_t, memory_count> next{0, runs_.front().plan.pages};
    for (const StayId id : runs_.front().plan.entry.stays) {
      const Stay& stay = runs_.front().plan.stays[index_of(id)];
      for (std::size_t i = 0; i < stay.pages.size(); ++i) {
        held[residence_of(stay)].push_back(static_cast<PageId>(next[static_cast<std::size_t>(stay.memory)]++));
      }
    }
    for (const Run& run : runs_) {
      std::vector<std::vector<PageId>> entry;
      for (const StayId id : run.plan.entry.stays) entry.push_back(held[residence_of(run.plan.stays[index_of(id)])]);
      followings_.push_back(trail.follow(run.waits, entry));
      held.clear();
      for (const StayId id : run.plan.exit.stays) {
        for (const PageId page : run.plan.stays[index_of(id)].pages) {
          held[residence_of(run.plan.stays[index_of(id)])].push_back(followings_.back().physical[index_of(page)]);
        }
      }
    }
  }

  void fail(std::string error) {
    if (error_.empty()) error_ = std::move(error);
  }

  bool enter() {
    const Plan& plan = runs_.front().plan;
    for (std::size_t i = 0; i < plan.entry.stays.size(); ++i) {
      const Residence what = residence_of(plan.stays[index_of(plan.entry.stays[i])]);
      const Cells& contents = contents_at_start_[index_of(what.bundle)];
      if (!attach(0, plan.entry.stays[i])) return false;
      if (plan.entry.dirty[i]) disk_[index_of(what.bundle)].reset();  // older than memory
      for (std::size_t c = 0; c < contents.size(); ++c) {
        if (std::int32_t* cell = at(what, c)) *cell = contents[c];
      }
    }
    return error_.empty();
  }

  void leave() {
    const Plan& plan = runs_.back().plan;
    std::vector<bool> on_disk(static_cast<std::size_t>(layout_.state_bundles), true);
    for (std::size_t n = 0; n < plan.exit.stays.size(); ++n) {
      const Stay& stay = plan.stays[index_of(plan.exit.stays[n])];
      if (plan.exit.dirty[n]) on_disk[index_of(stay.bundle)] = false;
      for (std::size_t i = 0; i < stay.pages.size(); ++i) {
        const std::int64_t address = first_part(residence_of(stay));
        const PageId page = followings_.back().physical[index_of(stay.pages[i])];
        if (where_[index_of(page)] != address + static_cast<std::int64_t>(i)) {
          return fail(fmt::format("bundle {} is not on its pages at the exit", index_of(stay.bundle)));
        }
      }
      if (sample(residence_of(stay)) != contents_at_end_[index_of(stay.bundle)]) {
        return fail(fmt::format("bundle {} is wrong in memory at the exit", index_of(stay.bundle)));
      }
    }
    const auto& dead = layout_.programs[static_cast<std::size_t>(plan.program)].dead_on_exit;
    for (std::size_t b = 0; b < on_disk.size(); ++b) {
      if (dead[b]) continue;
      if (on_disk[b] && disk_[b] != contents_at_end_[b]) return fail(fmt::format("bundle {} is wrong on disk", b));
    }
  }

  // Moves the pages of a stay to the address of its bundle.
  bool attach(std::size_t run, StayId id) {
    const Stay& stay = runs_[run].plan.stays[index_of(id)];
    std::int64_t slot = first_part(residence_of(stay));
    if (static_cast<std::int64_t>(stay.pages.size()) != layout_.pages_of(stay.bundle)) {
      fail(fmt::format("stay {} has {} pages", index_of(id), stay.pages.size()));
      return false;
    }
    for (const PageId number : stay.pages) {
      const bool of_device = static_cast<std::int64_t>(number) >= runs_[run].plan.pages;
      if (index_of(number) >= pages_.size() || of_device != (stay.memory == MemoryId::device)) {
        fail(fmt::format("there is no page {}", index_of(number)));
        return false;
      }
      const PageId page = followings_[run].physical[index_of(number)];
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

  // Where the bundle lies, in pages; the addresses of the device come after those of the host.
  std::int64_t first_part(const Residence& what) const {
    const std::int64_t from = what.memory == MemoryId::device ? layout_.address_bytes : 0;
    return (from + layout_.bundles[index_of(what.bundle)].address) / layout_.page_bytes;
  }

  // The cell of a bundle through its address; null, with a failure, when no page lies there.
  std::int32_t* at(const Residence& what, std::size_t cell) {
    const auto per_page = static_cast<std::size_t>(cells_per_page_);
    const std::int32_t page = holder_[static_cast<std::size_t>(first_part(what)) + cell / per_page];
    if (page < 0) {
      fail(fmt::format("bundle {} has no page at its address", index_of(what.bundle)));
      return nullptr;
    }
    return &pages_[static_cast<std::size_t>(page)][cell % per_page];
  }

  Cells sample(const Residence& what) {
    Cells all(contents_at_start_[index_of(what.bundle)].size(), nothing);
    for (std::size_t c = 0; c < all.size(); ++c) {
      const std::int32_t* cell = at(what, c);
      if (cell == nullptr) return {};
      all[c] = *cell;
    }
    return all;
  }

  const Instr& instr_of(const Step& step) const { return runs_[step.run].plan.instrs[index_of(step.instr)]; }

  // All it waits for, of its own plan and of those before.
  bool may_start(const Step& step) const {
    const LaneClock clock = followings_[step.run].wait_of(step.instr);
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      if (static_cast<std::int64_t>(done_[lane]) < clock[lane]) return false;
    }
    return true;
  }

  // One of all events possible now.
  std::optional<Event> choose() {
    std::vector<Event> events;
    std::vector<double> weights;
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      const auto& order = lanes_[lane];
      for (std::size_t i = done_[lane]; i < next_[lane]; ++i) {
        if (progress_[order[i]] != Progress::under_way) continue;
        events.push_back({order[i], false});
        weights.push_back(weights_[2 * lane]);
      }
      if (next_[lane] == order.size()) continue;
      if (runs_ops(static_cast<LaneId>(lane)) && done_[lane] < next_[lane]) continue;
      if (!may_start(steps_[order[next_[lane]]])) continue;
      events.push_back({order[next_[lane]], true});
      weights.push_back(weights_[2 * lane + 1]);
    }
    if (events.empty()) return std::nullopt;
    return events[std::discrete_distribution<std::size_t>(weights.begin(), weights.end())(random_)];
  }

  BundleId bundle_of(const Step& step) const {
    const Instr& instr = instr_of(step);
    return instr.stays.empty() ? BundleId::none : runs_[step.run].plan.stays[index_of(instr.stays.front())].bundle;
  }

  // What a move of the disk fills, or takes from.
  Residence moved(const Step& step) const {
    return residence_of(runs_[step.run].plan.stays[index_of(instr_of(step).stays.front())]);
  }

  // Of a copy: the memory it fills, or takes from.
  static MemoryId to_of(Instr::Kind kind) { return kind == Instr::Kind::up ? MemoryId::device : MemoryId::host; }
  static MemoryId from_of(Instr::Kind kind) { return kind == Instr::Kind::down ? MemoryId::device : MemoryId::host; }

  void mark_all(const Residence& what, std::size_t i) {
    for (std::size_t c = 0; c < sampled_[i].size(); ++c) {
      if (std::int32_t* cell = at(what, c)) *cell = mark(i);
    }
  }

  void fill(const Residence& what, std::size_t i) {
    for (std::size_t c = 0; c < sampled_[i].size(); ++c) {
      std::int32_t* cell = at(what, c);
      if (cell == nullptr) return;
      if (*cell != mark(i)) return fail(fmt::format("instruction {} was written over while it moved", i));
      *cell = sampled_[i][c];
    }
  }

  void start(std::size_t i) {
    const Instr& instr = instr_of(steps_[i]);
    progress_[i] = Progress::under_way;
    ++next_[static_cast<std::size_t>(instr.lane)];
    for (const StayId id : instr.begins) {
      if (!attach(steps_[i].run, id)) return;
    }
    const BundleId bundle = bundle_of(steps_[i]);
    if (instr.kind == Instr::Kind::run) {
      check_reads(i, false);
      for_each_cell(steps_[i], true, [&](std::int32_t& cell, std::int32_t) { cell = mark(i); });
    } else if (instr.kind == Instr::Kind::read) {
      if (!disk_[index_of(bundle)]) return fail(fmt::format("instruction {} reads what is not on disk", i));
      sampled_[i] = *disk_[index_of(bundle)];
      mark_all(moved(steps_[i]), i);
    } else if (instr.kind == Instr::Kind::write) {
      sampled_[i] = sample(moved(steps_[i]));
      disk_[index_of(bundle)].reset();
    } else if (is_copy(instr.kind)) {
      sampled_[i] = sample({from_of(instr.kind), bundle});
      mark_all({to_of(instr.kind), bundle}, i);
    } else {
      check_commit(runs_[steps_[i].run]);
    }
  }

  // What is on disk of all committed state is of the end of this run.
  void check_commit(const Run& run) {
    for (std::size_t b = 0; b < static_cast<std::size_t>(layout_.state_bundles); ++b) {
      if (layout_.bundles[b].committed && disk_[b] != run.contents_at_end[b]) {
        return fail(fmt::format("bundle {} is wrong at the commit", b));
      }
    }
  }

  void finish(std::size_t i) {
    const Instr& instr = instr_of(steps_[i]);
    progress_[i] = Progress::ended;
    --left_;
    const auto lane = static_cast<std::size_t>(instr.lane);
    while (done_[lane] < lanes_[lane].size() && progress_[lanes_[lane][done_[lane]]] == Progress::ended) ++done_[lane];
    const BundleId bundle = bundle_of(steps_[i]);
    if (instr.kind == Instr::Kind::run) {
      check_reads(i, true);
      for_each_cell(steps_[i], true, [&](std::int32_t& cell, std::int32_t value) {
        if (cell != mark(i)) fail(fmt::format("instruction {} was written over while it wrote %{}", i, value));
        cell = value;
      });
    } else if (instr.kind == Instr::Kind::read) {
      if (disk_[index_of(bundle)] != sampled_[i]) fail(fmt::format("the disk changed under instruction {}", i));
      fill(moved(steps_[i]), i);
    } else if (is_copy(instr.kind)) {
      if (sample({from_of(instr.kind), bundle}) != sampled_[i]) {
        fail(fmt::format("what instruction {} copies changed under it", i));
      }
      fill({to_of(instr.kind), bundle}, i);
    } else if (instr.kind == Instr::Kind::write) {
      if (sample(moved(steps_[i])) != sampled_[i]) fail(fmt::format("what instruction {} writes changed under it", i));
      if (disk_[index_of(bundle)]) fail(fmt::format("two instructions write bundle {}", index_of(bundle)));
      disk_[index_of(bundle)] = sampled_[i];
    }
  }

  // At the end of an op the reads whose bytes its writes take hold its mark.
  void check_reads(std::size_t i, bool at_end) {
    for_each_cell(steps_[i], false, [&](std::int32_t& cell, std::int32_t value) {
      if (cell == value || (at_end && cell == mark(i))) return;
      fail(fmt::format("instruction {} reads %{} where {} lies", i, value, cell));
    });
  }

  template <typename Visit>
  void for_each_cell(const Step& step, bool writes, const Visit& visit) {
    const Run& run = runs_[step.run];
    const Op& op = run.program.ops[index_of(instr_of(step).op)];
    for (const Operand& operand : writes ? op.writes : op.reads) {
      for (std::size_t k = 0; operand.exists() && k < static_cast<std::size_t>(operand.count); ++k) {
        const std::size_t value = index_of(operand.first) + k;
        const Place& place = run.places[value];
        if (place.bundle == BundleId::none) continue;
        const std::size_t begin = cells(place.offset_bytes);
        for (std::size_t c = begin; c < begin + cells(run.program.values[value].type.bytes()); ++c) {
          std::int32_t* cell = at({run.plan.memory_of(instr_of(step).lane), place.bundle}, c);
          if (cell == nullptr) return;
          visit(*cell, run.tags[value]);
        }
      }
    }
  }

  const Layout& layout_;
  std::vector<Run> runs_;
  std::vector<Step> steps_;                                 // of all runs
  std::array<std::vector<std::size_t>, lane_count> lanes_;  // steps in order
  std::int64_t cells_per_page_ = 0;
  std::vector<Cells> contents_at_start_;  // by bundle
  std::vector<Cells> contents_at_end_;

  std::mt19937_64 random_;
  std::array<double, 2 * lane_count> weights_{};  // by lane: of an end, of a beginning
  std::string error_;
  std::vector<Cells> pages_;
  std::vector<std::int64_t> where_;   // by page: its part of the address ranges, or -1
  std::vector<std::int32_t> holder_;  // by part of the address ranges: its page, or -1
  std::vector<std::optional<Cells>> disk_;
  std::vector<Progress> progress_;
  std::vector<Cells> sampled_;
  std::vector<Following> followings_;  // by run
  std::array<std::size_t, lane_count> next_{};
  std::array<std::size_t, lane_count> done_{};
  std::size_t left_ = 0;
};

}  // namespace spillway
