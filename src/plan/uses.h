// When a Program touches its bundles: what the planner asks of the future. Everything is counted in segments; state
// comes round again in the next step, so its uses go on at segments().
#pragma once

#include <limits>
#include <vector>

#include "plan/layout.h"

namespace spillway {

constexpr std::int32_t never_used = std::numeric_limits<std::int32_t>::max();

class Uses {
 public:
  Uses(const Layout& layout, std::int32_t program);

  std::int32_t segments() const { return segments_; }

  // The next segment that touches the bundle after segment s, or never_used. What the next step only creates is not
  // needed there.
  std::int32_t next(BundleId bundle, std::int32_t s) const;

  // Whether that is a use below; see Use::below.
  bool next_is_below(BundleId bundle, std::int32_t s) const;

  // Whether it is changed below from segment s to segment j.
  bool changes_below(BundleId bundle, std::int32_t s, std::int32_t j) const;

  // The last segment that changes the bundle; -1: none does.
  std::int32_t last_change(BundleId bundle) const { return last_change_[index_of(bundle)]; }

  // Not what is created anew after segment s and up to segment j.
  bool can_be_read(BundleId bundle, std::int32_t s, std::int32_t j) const;

  // Pages that must be free at segment s, before it runs, so that what the segments after it up to j create finds room.
  std::int64_t pages_to_create(std::int32_t s, std::int32_t j) const;

 private:
  std::int32_t next_touch(BundleId bundle, std::int32_t s, std::int32_t& segment) const;

  const Layout& layout_;
  const ProgramLayout& program_;
  std::int32_t segments_ = 0;
  std::vector<std::int32_t> first_touch_;        // by bundle, and one more
  std::vector<std::int32_t> touches_;            // of all bundles, ascending in each
  std::vector<std::int32_t> last_change_;        // by bundle
  std::vector<bool> creates_;                    // by touch: it creates the bundle
  std::vector<bool> below_;                      // by touch; empty: none is
  std::vector<bool> changes_below_;              // by touch; empty: none does
  std::vector<std::int64_t> balance_;            // by segment: pages created up to it less pages ended before it
  std::vector<std::vector<std::int64_t>> most_;  // by level: the most of balance_ over 2^level segments
};

}  // namespace spillway
