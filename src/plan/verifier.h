// The verifier's reading of one plan; see verify in plan/plan.h.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "program/spec.h"

namespace spillway {

// For each lane, how many of its instructions are known to be done.
using Clock = std::array<std::int32_t, lane_count>;

inline Clock join(const Clock& a, const Clock& b) {
  Clock out;
  for (std::size_t i = 0; i < lane_count; ++i) out[i] = std::max(a[i], b[i]);
  return out;
}

// What has touched a stay.
struct StayLog {
  bool begun = false;
  Clock accessed{};                                       // per lane, one past the last access
  std::optional<std::pair<std::size_t, int>> last_write;  // lane and position
};

// Of each lane, the first instruction known to have waited for what earlier plans left under way.
class Guard {
 public:
  void add(std::size_t lane, std::int32_t position) { firsts_[lane] = std::min(firsts_[lane], position); }
  // Whether one of them has started when an instruction of `lane` starts for which `start` is done.
  bool holds(std::size_t lane, const Clock& start) const {
    if (firsts_[lane] != none) return true;
    for (std::size_t other = 0; other < lane_count; ++other) {
      if (firsts_[other] < start[other]) return true;
    }
    return false;
  }

 private:
  static constexpr std::int32_t none = std::numeric_limits<std::int32_t>::max();
  Clock firsts_ = [] {
    Clock firsts{};
    firsts.fill(none);
    return firsts;
  }();
};

struct BundleLog {
  std::int64_t version = 0;                                         // of the newest bytes
  std::int64_t on_disk = 0;                                         // -1: nothing there
  Clock moved{};                                                    // per lane, one past the last move of the disk
  std::map<std::int64_t, std::pair<std::int64_t, ValueId>> values;  // begin -> end, value: what the newest bytes hold
  bool dead = false;   // holds no value that the Program may read as it found it
  Guard moved_before;  // moves of its copy on disk in earlier plans are waited for, by a move
};

// A bundle in one memory.
struct ResidenceLog {
  std::int64_t version = -1;      // of the current stay
  StayId current = StayId::none;  // the last that was begun
  Guard seen;                     // what wrote it in earlier plans is waited for
  Guard changed;                  // so is every access to it
};

class Verifier {
 public:
  Verifier(const Plan& plan, const Layout& layout, const Program& program)
      : plan_(plan),
        layout_(layout),
        program_(program),
        places_(layout.programs[static_cast<std::size_t>(plan.program)].places),
        stays_(plan.stays.size()),
        bundles_(layout.bundles.size()),
        residences_(memory_count * layout.bundles.size()),
        owner_(static_cast<std::size_t>(plan.all_pages()), StayId::none) {}

  // Empty when the plan holds, otherwise one sentence.
  std::string run();

 private:
  template <typename... Args>
  bool fail(fmt::format_string<Args...> format, Args&&... args) {
    error_ = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }

  // verify_boundary.cpp
  bool enter();
  bool leave();

  ResidenceLog& at(MemoryId memory, BundleId bundle) { return residences_[index_in(layout_, {memory, bundle})]; }
  ResidenceLog& residence(StayId id) { return residences_[index_in(layout_, residence_of(plan_.stays[index_of(id)]))]; }
  BundleLog& bundle_of(StayId id) { return bundles_[index_of(plan_.stays[index_of(id)].bundle)]; }

  // verify.cpp
  bool has_page(const Stay& stay, PageId page) const;
  bool own(StayId id, const Clock& start, std::string_view who);
  bool leave_address(StayId id, const Clock& start, const std::string& who);
  bool check(std::size_t i, const Clock& start, std::int32_t position);
  static LaneId lane_of(Instr::Kind kind);
  bool check_form(const Instr& instr, const std::string& who);
  bool check_firsts(const Instr& instr, const Clock& start, std::int32_t position, const std::string& who);
  bool segment_writes(BundleId bundle) const;
  bool access(StayId id, const Clock& start, std::size_t lane, std::int32_t position, bool writes,
              const std::string& who);
  // verify_versions.cpp
  bool writes_to(const Instr& instr, StayId id) const;
  bool check_disk(const Instr& instr, const Clock& start, std::int32_t position, const std::string& who);
  bool check_read(const Instr& instr, const std::string& who);
  bool check_write(const Instr& instr, const std::string& who);
  bool check_copy(StayId above, StayId below, MemoryId from, const std::string& who);
  bool check_commit(const Instr& instr, const std::string& who);
  bool check_run(const Instr& instr, const Clock& start, std::int32_t position, const std::string& who);
  bool check_outside(const Instr& instr, ValueId id, bool writes, const Clock& start, std::int32_t position,
                     const std::string& who);
  bool check_value(const Instr& instr, ValueId id, bool writes, const std::string& who);
  bool check_holds(const BundleLog& bundle, ValueId id, std::int64_t begin, std::int64_t end, const std::string& who);

  const Plan& plan_;
  const Layout& layout_;
  const Program& program_;
  const std::vector<Place>& places_;
  std::vector<StayLog> stays_;
  std::vector<BundleLog> bundles_;
  std::vector<ResidenceLog> residences_;                             // see index_in
  std::vector<StayId> owner_;                                        // by page
  std::set<StayId> entered_;                                         // held at the entry
  std::size_t segment_ = 0;                                          // of the last run
  std::map<ValueId, std::pair<std::size_t, std::int32_t>> outputs_;  // lane and position of what makes each
  std::vector<std::int64_t> committed_;                              // by state bundle: the version at the commit
  std::string error_;
};

}  // namespace spillway
