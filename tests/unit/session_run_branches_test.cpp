#include <gtest/gtest.h>

#include "base/error.h"
#include "scratch_folder.h"
#include "session/run_branches.h"

namespace spillway {
namespace {

RunState at(const std::string& branch, std::int64_t step) {
  RunState state;
  state.branch = branch;
  state.step = step;
  return state;
}

TEST(RunBranches, OfARunThatNeverWentBackAllIsItsOwn) {
  const ScratchFolder scratch;
  const RunBranches branches(scratch.path());
  EXPECT_TRUE(branches.hold(at("a", 9)));
  EXPECT_TRUE(branches.hold(at("", 9)));
  EXPECT_TRUE(branches.is_last(at("a", 9)));
  EXPECT_FALSE(branches.is_last(at("", 9))) << "it has no name to keep";
  branches.write(scratch.path());
  EXPECT_FALSE(std::filesystem::exists(scratch / run_branches_name));
}

TEST(RunBranches, HoldTheWayThatLedThere) {
  const ScratchFolder scratch;
  RunBranches branches;
  branches.leave(at("a", 10), "b");
  branches.leave(at("b", 30), "c");
  branches.leave(at("a", 40), "d");
  branches.leave(at("b", 25), "e");  // up again to one that was left
  branches.write(scratch.path());
  const RunBranches read(scratch.path());
  for (const RunBranches* const either : std::initializer_list<const RunBranches*>{&branches, &read}) {
    EXPECT_TRUE(either->hold(at("a", 10)));
    EXPECT_FALSE(either->hold(at("a", 11))) << "d went on from there, and e does not come from d";
    EXPECT_TRUE(either->hold(at("b", 25)));
    EXPECT_FALSE(either->hold(at("b", 26)));
    EXPECT_FALSE(either->hold(at("c", 31)));
    EXPECT_FALSE(either->hold(at("d", 41)));
    EXPECT_TRUE(either->hold(at("e", 1000)));
    EXPECT_TRUE(either->is_last(at("e", 1000)));
    EXPECT_FALSE(either->is_last(at("b", 25)));
  }
}

// An older branch that came from a later step of another than its own end.
TEST(RunBranches, AnEarlierEndCountsForAllBefore) {
  RunBranches branches;
  branches.leave(at("a", 10), "b");
  branches.leave(at("b", 4), "c");  // of b there are steps below 10 in a file that was edited
  EXPECT_TRUE(branches.hold(at("a", 4)));
  EXPECT_FALSE(branches.hold(at("a", 10)));
}

TEST(RunBranches, AFileThatGoesInCirclesEnds) {
  const ScratchFolder scratch;
  scratch.file(std::string(run_branches_name), R"({"branch": "a", "branches": [
      {"branch": "a", "from": "b", "after_step": 1}, {"branch": "b", "from": "a", "after_step": 2}]})");
  EXPECT_FALSE(RunBranches(scratch.path()).hold(at("z", 1)));
  scratch.file(std::string(run_branches_name), R"({"branch": "a", "branches": [{"branch": 3}]})");
  EXPECT_THROW(RunBranches(scratch.path()), UserError);
}

}  // namespace
}  // namespace spillway
