#include "plan/update_split.h"

#include <algorithm>
#include <numeric>

#include "program/spec.h"

namespace spillway {
namespace {

// The device has only what need not move for it.
constexpr double next_to_none = 1e-6;

// Segments joined where they write one bundle: union-find by segment.
class Joined {
 public:
  explicit Joined(std::size_t segments) : parent_(segments) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }

  std::size_t root(std::size_t segment) {
    while (parent_[segment] != segment) segment = parent_[segment] = parent_[parent_[segment]];
    return segment;
  }
  void join(std::size_t a, std::size_t b) {
    const auto [low, high] = std::minmax({root(a), root(b)});
    parent_[high] = low;
  }

 private:
  std::vector<std::size_t> parent_;
};

std::int64_t parameters_of(const Program& program, std::int32_t begin, std::int32_t end) {
  std::int64_t parameters = 0;
  for (std::int32_t i = begin; i < end; ++i) {
    parameters += program.type_of(program.ops[static_cast<std::size_t>(i)].writes.front()).elements();
  }
  return parameters;
}

}  // namespace

std::vector<UpdateGroup> update_groups(const Program& program, const Layout& layout, std::int32_t number) {
  const ProgramLayout& step = layout.programs[static_cast<std::size_t>(number)];
  const auto segments = static_cast<std::size_t>(step.segments.count());
  std::vector<bool> updates(segments);
  std::vector<bool> apart(layout.bundles.size(), true);  // touched by updates alone
  for (std::size_t s = 0; s < segments; ++s) {
    updates[s] =
        std::all_of(program.ops.begin() + step.segments.begin[s], program.ops.begin() + step.segments.begin[s + 1],
                    [](const Op& op) { return op.spec->anywhere; });
    for (const Use& use : step.uses[s]) apart[index_of(use.bundle)] = apart[index_of(use.bundle)] && updates[s];
  }
  constexpr std::size_t nobody = static_cast<std::size_t>(-1);
  std::vector<std::size_t> writer(layout.bundles.size(), nobody);
  Joined joined(segments);
  for (std::size_t s = 0; s < segments; ++s) {
    for (const Use& use : step.uses[s]) {
      if (!updates[s] || !use.writes) continue;
      std::size_t& first = writer[index_of(use.bundle)];
      if (first == nobody) first = s;
      joined.join(first, s);
    }
  }
  std::vector<UpdateGroup> groups;
  std::vector<std::size_t> group_of(segments, nobody);  // by root
  for (std::size_t s = 0; s < segments; ++s) {
    if (!updates[s]) continue;
    std::size_t& at = group_of[joined.root(s)];
    if (at == nobody) {
      at = groups.size();
      groups.emplace_back();
    }
    UpdateGroup& group = groups[at];
    group.segments.push_back(static_cast<std::int32_t>(s));
    group.parameters += parameters_of(program, step.segments.begin[s], step.segments.begin[s + 1]);
    for (const Use& use : step.uses[s]) group.moves = group.moves || (use.writes && apart[index_of(use.bundle)]);
  }
  return groups;
}

std::vector<bool> updates_below(const std::vector<UpdateGroup>& groups, const Layout& layout, std::int32_t number,
                                double device_share) {
  const auto segments = layout.programs[static_cast<std::size_t>(number)].segments.count();
  std::vector<bool> below(static_cast<std::size_t>(segments), false);
  double owed = 0;  // parameters that the device has too few so far
  for (const UpdateGroup& group : groups) {
    const auto parameters = static_cast<double>(group.parameters);
    owed += device_share * parameters;
    const bool on_device = device_share > 0 && (!group.moves || owed >= 0.5 * parameters);
    if (on_device) owed -= parameters;
    for (const std::int32_t s : group.segments) below[static_cast<std::size_t>(s)] = !on_device;
  }
  return below;
}

double balanced_device_share(const UpdateRates& rates, const LinkRate& link, const UpdateBytes& bytes) {
  const double up = link.up_bytes_per_second;
  const double down = link.down_bytes_per_second;
  const double on_device = bytes.state / std::min(up, down) + 1 / rates.device_parameters_per_second;
  const double gain = 1 / rates.host_parameters_per_second - std::max(bytes.weight / up, bytes.gradient / down);
  return gain <= 0 ? 0 : 1 / (1 + on_device / gain);
}

double choose_device_share(double estimate, double finest, const std::function<double(double share)>& seconds) {
  double best = 0;
  double least = seconds(0);
  const auto attempt = [&](double share) {
    if (share < 0 || share > 1) return;
    const double taken = seconds(share);
    if (taken >= least) return;
    best = share;
    least = taken;
  };
  attempt(next_to_none);
  attempt(1);
  attempt(estimate);
  for (double step = 0.16; step >= std::max(finest, 0.02) / 2; step /= 2) {
    const double around = best;
    attempt(around - step);
    attempt(around + step);
  }
  return best;
}

}  // namespace spillway
