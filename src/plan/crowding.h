// In which segments of a step more pages are alive than there is room for, while bundles are taken out of ranges of
// segments. Both questions take time in the logarithm of the segments, not in the length of the range.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace spillway {

class Crowding {
 public:
  // Pages alive in each segment; more than `room` are too many.
  Crowding(std::span<const std::int64_t> alive, std::int64_t room);

  // How many segments from `begin` up to `end` have too many.
  std::int64_t crowded(std::size_t begin, std::size_t end) const;
  // Takes so many pages out of each of them.
  void relieve(std::size_t begin, std::size_t end, std::int64_t pages);

 private:
  // A tree over the segments. What is no longer crowded is out of it for good, so each segment is looked at by itself
  // once.
  struct Node {
    std::int64_t least_excess;  // over `room`, of the crowded segments below
    std::int64_t pending = 0;   // taken out of all below, which do not know of it yet
    std::int64_t crowded = 0;
  };
  struct Range {
    std::size_t begin, end;
  };
  void relieve(std::size_t node, Range below, Range range, std::int64_t pages);
  void take(Node& node, std::int64_t pages);
  void join(std::size_t node);

  std::size_t leaves_ = 1;
  std::vector<Node> nodes_;  // the root is 1, below n are 2n and 2n + 1
};

}  // namespace spillway
