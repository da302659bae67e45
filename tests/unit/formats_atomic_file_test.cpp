#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/error.h"
#include "formats/atomic_file.h"
#include "scratch_folder.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

TEST(AtomicFile, ReplacesFilesAndFollowsLinks) {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "folder");
  fs::create_symlink("folder/target", scratch / "link");
  for (const char* const text : {"one", "two"}) {
    write_file_atomically(scratch / "link", text);
    EXPECT_TRUE(fs::is_symlink(scratch / "link"));
    EXPECT_EQ(scratch.text_of("folder/target"), text);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch / "folder"), {}), 1);
}

TEST(AtomicFile, RefusesToReplaceWhatIsNoFile) {
  const ScratchFolder scratch;
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", scratch / "link");
  fs::create_symlink("loop", scratch / "loop");
  fs::create_directory(scratch / "folder");
  for (const char* const name : {"pipe", "link", "loop", "folder"}) {
    EXPECT_THROW(write_file_atomically(scratch / name, "text"), UserError) << name;
  }
  EXPECT_TRUE(fs::is_fifo(scratch / "pipe"));
  EXPECT_THROW(file_to_replace("/dev/null"), UserError);
}

}  // namespace
}  // namespace spillway
