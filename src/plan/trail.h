// What plans leave under way for those that follow them. Plans follow each other with no barrier between: each lane
// goes on to the next plan's instructions when those of the last are started, so a plan may meet moves of any plan
// before it.
//
// Within a plan every wait is named. Across plans only the instructions marked Instr::first wait, each for the last
// accesses of earlier plans to its bundles in the memory it uses, to their copies on disk and to the pages it begins
// on. A direct move of the disk (plan/direct.h) uses the device's memory:
//   a run that only reads a bundle   what wrote its memory
//   a run that changes it            every access to its memory
//   a read from disk                 every access to its memory, and what wrote its copy
//   a write to disk                  what wrote its memory, and every access to its copy
//   a copy between two memories      what wrote the one, and every access to the other
//   the beginning of a stay          every access to its pages, and to the memory the bundle had
// Used by the executor and by the simulator. Single-threaded.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace spillway {

// By lane, how many instructions are done, of one plan or of all plans so far. 0: none needs to be.
using LaneClock = std::array<std::int64_t, lane_count>;

LaneClock join(const LaneClock& a, const LaneClock& b);

// The waits of one plan, whatever it follows, and what it touches.
class PlanWaits {
 public:
  PlanWaits(const Plan& plan, const Layout& layout);

  const Plan& plan() const { return plan_; }
  const LaneClock& of(InstrId id) const { return waits_[index_of(id)]; }
  // The commit, which waits for everything before it in its lane, and how much of that is of this plan.
  InstrId commit() const { return commit_; }
  std::int64_t position_of_commit() const { return position_of_commit_; }
  std::int32_t first_of(InstrId id) const { return first_of_[index_of(id)]; }  // its place among the firsts, or -1

 private:
  friend class Trail;

  // The last accesses of one bundle in one memory; what moves it to and from disk is counted with the host's.
  struct Touched {
    Residence what;
    LaneClock accessed{};  // its memory
    LaneClock written{};   // its memory
    LaneClock moved{};     // its copy on disk
    LaneClock stored{};    // its copy on disk, by a write
  };
  struct First {
    InstrId instr = InstrId::none;
    std::vector<bool> changes;  // by stay of the instruction
  };

  const Plan& plan_;
  const Layout& layout_;
  std::vector<LaneClock> waits_;
  InstrId commit_ = InstrId::none;
  std::int64_t position_of_commit_ = 0;
  std::vector<First> firsts_;
  std::vector<std::int32_t> first_of_;  // by instruction: its place in firsts_, or -1
  std::vector<Touched> touched_;
  std::vector<LaneClock> page_accessed_;   // by page
  std::vector<std::int64_t> page_begins_;  // by page: the instruction that first begins a stay on it
  std::vector<std::int64_t> page_ends_;    // by page: the last instruction that touches it, or -1
};

// One plan in the stream.
struct Following {
  const PlanWaits* waits = nullptr;
  std::vector<PageId> physical;   // by page of the plan
  LaneClock base{};               // instructions of all plans before it
  std::vector<LaneClock> firsts;  // by PlanWaits::firsts_: what they wait for of earlier plans
  std::int64_t number = 0;        // of the run, from 1

  // Everything that must be done before the instruction starts, in the clock of all plans.
  LaneClock wait_of(InstrId id) const;
};

class Trail {
 public:
  // `pages`: of all memories; those of plans that follow are as many of each.
  Trail(std::size_t bundles, std::size_t pages);

  // Lets the plan follow all those before it. `held`: the physical pages of the stays of its entry, in that order. Its
  // other pages are laid on those of the same memory that were left longest ago; those of a device and of a plan that
  // is flat, where the entry lies on the same pages as before, on the same in every step.
  Following follow(const PlanWaits& waits, std::span<const std::vector<PageId>> held);

 private:
  std::vector<PageId> lay_pages(const PlanWaits& waits, std::span<const std::vector<PageId>> held) const;
  static void keep_numbers(std::span<PageId> of_plan, std::int64_t first);
  void lay_open_pages(const PlanWaits& waits, const std::vector<bool>& used, std::vector<PageId>& physical) const;
  const PlanWaits::Touched& at(const PlanWaits& waits, const Residence& what) const;
  LaneClock wait_of(const PlanWaits& waits, const PlanWaits::First& first, const std::vector<PageId>& physical) const;
  void note(const PlanWaits& waits, const std::vector<PageId>& physical);

  std::vector<PlanWaits::Touched> residences_;  // see index_in; of the host's memory alone while no other is touched
  std::vector<LaneClock> page_accessed_;
  std::vector<std::int64_t> page_left_;  // by physical page: the last instruction of all that touched it
  LaneClock base_{};
  std::int64_t instrs_ = 0;
  std::int64_t runs_ = 0;
};

}  // namespace spillway
