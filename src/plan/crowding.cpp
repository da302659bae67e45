#include "plan/crowding.h"

#include <algorithm>
#include <limits>

namespace spillway {
namespace {

constexpr std::int64_t no_excess = std::numeric_limits<std::int64_t>::max() / 2;  // where nothing is crowded

}  // namespace

Crowding::Crowding(std::span<const std::int64_t> alive, std::int64_t room) {
  while (leaves_ < alive.size()) leaves_ *= 2;
  nodes_.assign(2 * leaves_, {no_excess});
  for (std::size_t s = 0; s < alive.size(); ++s) {
    if (alive[s] > room) nodes_[leaves_ + s] = {alive[s] - room, 0, 1};
  }
  for (std::size_t node = leaves_; node-- > 1;) join(node);
}

void Crowding::join(std::size_t node) {
  const Node& left = nodes_[2 * node];
  const Node& right = nodes_[2 * node + 1];
  nodes_[node].least_excess = std::min(left.least_excess, right.least_excess);
  nodes_[node].crowded = left.crowded + right.crowded;
}

std::int64_t Crowding::crowded(std::size_t begin, std::size_t end) const {
  std::int64_t count = 0;
  for (begin += leaves_, end += leaves_; begin < end; begin /= 2, end /= 2) {
    if (begin % 2 == 1) count += nodes_[begin++].crowded;
    if (end % 2 == 1) count += nodes_[--end].crowded;
  }
  return count;
}

void Crowding::relieve(std::size_t begin, std::size_t end, std::int64_t pages) {
  if (begin < end) relieve(1, {0, leaves_}, {begin, end}, pages);
}

void Crowding::take(Node& node, std::int64_t pages) {
  if (node.crowded == 0) return;
  node.least_excess -= pages;
  node.pending += pages;
}

void Crowding::relieve(std::size_t node, Range below, Range range, std::int64_t pages) {
  Node& here = nodes_[node];
  if (range.end <= below.begin || below.end <= range.begin || here.crowded == 0) return;
  const bool is_inside = range.begin <= below.begin && below.end <= range.end;
  if (is_inside && here.least_excess > pages) return take(here, pages);
  if (node >= leaves_) {
    here = {no_excess};
    return;
  }
  take(nodes_[2 * node], here.pending);
  take(nodes_[2 * node + 1], here.pending);
  here.pending = 0;
  const std::size_t middle = (below.begin + below.end) / 2;
  relieve(2 * node, {below.begin, middle}, range, pages);
  relieve(2 * node + 1, {middle, below.end}, range, pages);
  join(node);
}

}  // namespace spillway
