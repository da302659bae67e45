// What is asked of the system for the folder of a run: its name is made durable, and where it cannot be locked that is
// said. The two calls are taken from the C library, noted, and passed on or refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>

#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/run_folder.h"
#include "session/session.h"
#include "small_run.h"

namespace {

std::mutex mutex;
std::set<std::filesystem::path> synced;
bool folders_cannot_be_locked = false;

std::filesystem::path path_of(int descriptor) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), error);
}

}  // namespace

extern "C" int fsync(int descriptor) {
  {
    const std::lock_guard lock(mutex);
    synced.insert(path_of(descriptor));
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

// As NFS does: it locks by way of writing.
extern "C" int flock(int descriptor, int operation) noexcept {
  if (folders_cannot_be_locked && (operation & LOCK_EX) != 0 && std::filesystem::is_directory(path_of(descriptor))) {
    errno = EBADF;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
}

namespace spillway {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class FolderCalls : public testing::Test {
 protected:
  void SetUp() override {
    options_ = small_run(scratch_);
    options_.output_dir = (scratch_ / "new/and/run/").string();
    options_.max_steps = 2;
    synced.clear();
    folders_cannot_be_locked = false;
  }

  ScratchFolder scratch_;
  TrainOptions options_;
  RecordingObserver observer_;
};

TEST_F(FolderCalls, TheNamesOfNewFoldersAreMadeDurable) {
  run_train(options_, observer_);
  for (const char* const above : {"", "new", "new/and"}) {
    const std::filesystem::path folder = *above == 0 ? scratch_.path() : scratch_ / above;
    EXPECT_TRUE(synced.contains(folder)) << folder;
  }
  EXPECT_THAT(observer_.notes, Not(Contains(HasSubstr("cannot be locked"))));
}

TEST_F(FolderCalls, WhereAFolderCannotBeLockedThatIsSaid) {
  folders_cannot_be_locked = true;
  run_train(options_, observer_);
  EXPECT_THAT(observer_.notes, Contains(AllOf(HasSubstr("cannot be locked"), HasSubstr("new/and/run"))));
}

}  // namespace
}  // namespace spillway
