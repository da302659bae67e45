#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "store/slot_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class StoreSlotFile : public testing::Test {
 protected:
  StoreSlotFile() : engine_(make_io_engine({.depth = 4})) {
    std::string path = (fs::canonical(testing::TempDir()) / "spillway-slots-XXXXXX").string();
    directory_ = mkdtemp(path.data());
  }
  ~StoreSlotFile() override { fs::remove_all(directory_); }

  SlotStoreOptions options(std::int64_t slots, std::vector<fs::path> directories = {}) const {
    if (directories.empty()) directories = {directory_};
    return {.directories = directories, .slot_bytes = 64 * kib, .slot_count = slots};
  }

  // The message of the error that making such a store gives.
  template <typename Expected>
  std::string refusal(const SlotStoreOptions& asked) {
    try {
      const SlotStore store(asked, *engine_);
    } catch (const Expected& error) {
      return error.what();
    }
    ADD_FAILURE() << "not refused";
    return "";
  }

  std::unique_ptr<IoEngine> engine_;
  fs::path directory_;
};

TEST_F(StoreSlotFile, SlotsAreDistinctAndSpreadOverDirectories) {
  const fs::path other = directory_ / "other";
  fs::create_directory(other);
  SlotStore store(options(7, {directory_, other, directory_}), *engine_);
  EXPECT_EQ(store.slot_count(), 7);
  std::set<std::pair<int, std::int64_t>> places;
  std::vector<int> in_file(3, 0);
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(store.free_count(), 7 - i);
    const SlotStore::Location location = store.location(store.allocate());
    EXPECT_TRUE(places.insert({location.file, location.offset_bytes}).second);
    EXPECT_EQ(location.offset_bytes % store.slot_bytes(), 0);
    EXPECT_LT(location.offset_bytes, 3 * store.slot_bytes());
    ++in_file[static_cast<std::size_t>(location.file)];
  }
  EXPECT_EQ(store.free_count(), 0);
  EXPECT_THAT(in_file, testing::ElementsAre(3, 2, 2));
}

TEST_F(StoreSlotFile, SlotsAreMadeAndHandedOutInTheProportionOfShares) {
  const fs::path other = directory_ / "other";
  fs::create_directory(other);
  SlotStoreOptions asked = options(40, {directory_, other});
  asked.shares = {3e9, 1e9};
  SlotStore store(asked, *engine_);
  EXPECT_EQ(store.slot_count(), 40);
  std::vector<int> in_file(2, 0);
  std::vector<SlotId> slots;
  for (int i = 1; i <= 40; ++i) {
    slots.push_back(store.allocate());
    ++in_file[static_cast<std::size_t>(store.location(slots.back()).file)];
    EXPECT_NEAR(in_file[0], 0.75 * i, 1) << "after " << i;
  }
  EXPECT_THAT(in_file, testing::ElementsAre(30, 10));
  // Versions that are replaced again and again stay spread, and a file without a free slot is passed over.
  for (const SlotId slot : slots) {
    if (store.location(slot).file == 0) store.release(slot);
  }
  for (int i = 0; i < 30; ++i) EXPECT_EQ(store.location(store.allocate()).file, 0);
  EXPECT_EQ(store.free_count(), 0);
}

TEST_F(StoreSlotFile, ReleasedSlotsComeBackAndContentsStay) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const fs::path other = directory_ / "other";
  fs::create_directory(other);
  SlotStore store(options(16, {directory_, other}), *engine_);
  struct FreeAligned {
    void operator()(std::byte* data) const { ::operator delete(data, std::align_val_t(4096)); }
  };
  const auto bytes = static_cast<std::size_t>(store.slot_bytes());
  const std::unique_ptr<std::byte, FreeAligned> data(
      static_cast<std::byte*>(::operator new(bytes, std::align_val_t(4096))));
  std::vector<std::pair<SlotId, int>> held;
  const auto transfer = [&](IoRequest::Kind kind, SlotId slot) {
    const SlotStore::Location location = store.location(slot);
    engine_->submit({kind, location.file, location.offset_bytes, data.get(), store.slot_bytes(), 0});
    std::vector<IoCompletion> done;
    while (done.empty()) engine_->wait(done);
    ASSERT_EQ(done[0].error, 0);
    ASSERT_EQ(done[0].bytes, store.slot_bytes());
  };
  for (int round = 0; round < 300; ++round) {
    if (store.free_count() > 0 && (held.empty() || random() % 2 == 0)) {
      held.emplace_back(store.allocate(), static_cast<int>(random() % 256));
      std::memset(data.get(), held.back().second, bytes);
      transfer(IoRequest::Kind::write, held.back().first);
    } else {
      std::swap(held[random() % held.size()], held.back());
      transfer(IoRequest::Kind::read, held.back().first);
      const auto value = static_cast<std::byte>(held.back().second);
      ASSERT_TRUE(std::all_of(data.get(), data.get() + bytes, [value](std::byte b) { return b == value; }));
      store.release(held.back().first);
      held.pop_back();
    }
  }
}

TEST_F(StoreSlotFile, LeavesNoNameBehindAndReservesItsSpace) {
  const SlotStore store(options(32), *engine_);
  EXPECT_TRUE(fs::is_empty(directory_));
  bool found = false;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const fs::path target = fs::read_symlink(entry.path(), error);
    if (target.string().find(directory_.string() + "/spillway-") != 0) continue;
    struct stat info {};
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_size, 32 * store.slot_bytes());
    EXPECT_GE(info.st_blocks * 512, 32 * store.slot_bytes());
    found = true;
  }
  EXPECT_TRUE(found);
}

TEST_F(StoreSlotFile, AMissingDirectoryIsTheUsersToMend) {
  const std::string missing = (directory_ / "nowhere").string();
  const std::string text = refusal<UserError>(options(4, {missing}));
  EXPECT_THAT(text, HasSubstr(missing));
  EXPECT_THAT(text, HasSubstr("create it"));
}

TEST_F(StoreSlotFile, AFileIsNoDirectory) {
  std::ofstream(directory_ / "file") << "x";
  EXPECT_THAT(refusal<UserError>(options(4, {directory_ / "file"})), HasSubstr("is not a directory"));
}

TEST_F(StoreSlotFile, AReadOnlyDirectoryIsTheUsersToMend) {
  fs::permissions(directory_,
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  const bool root = geteuid() == 0;
  // The superuser may write anywhere: this thread then looks at files as nobody.
  if (root) setfsuid(65534);
  const std::string text = refusal<UserError>(options(4));
  if (root) setfsuid(0);
  fs::permissions(directory_, fs::perms::owner_all);
  EXPECT_THAT(text, HasSubstr(directory_.string()));
  EXPECT_THAT(text, HasSubstr("not writable"));
}

TEST_F(StoreSlotFile, AFullDirectoryNamesWhatIsNeededAndWhatIsFree) {
  struct statvfs info {};
  ASSERT_EQ(statvfs(directory_.c_str(), &info), 0);
  const auto free_bytes = static_cast<std::int64_t>(info.f_bavail * info.f_frsize);
  SlotStoreOptions asked = options(2);
  asked.slot_bytes = round_up(free_bytes, 4096) + gib;
  const std::string text = refusal<DeviceError>(asked);
  EXPECT_THAT(text, HasSubstr(directory_.string()));
  EXPECT_THAT(text, HasSubstr(format_bytes(2 * asked.slot_bytes)));
  EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(StoreSlotFile, ALimitOnFileSizesIsASentenceNotASignal) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{static_cast<rlim_t>(mib), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text = refusal<DeviceError>(options(64));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(text, HasSubstr(format_bytes(4 * mib)));
  EXPECT_THAT(text, HasSubstr("ulimit -f"));
}

TEST_F(StoreSlotFile, AFileSystemInMemoryWorksAndIsNamed) {
  if (!fs::is_directory("/dev/shm")) GTEST_SKIP() << "no /dev/shm";
  SlotStore store(options(4, {"/dev/shm"}), *engine_);
  EXPECT_THAT(store.describe(), HasSubstr("/dev/shm: 4 slots of 64"));
  EXPECT_THAT(store.describe(), HasSubstr("keeps its files in memory"));
  EXPECT_EQ(store.direct(), store.describe().find("direct I/O was refused") == std::string::npos);
}

TEST_F(StoreSlotFile, FailuresAreSentences) {
  SlotStore store(options(4), *engine_);
  const SlotId slot = store.allocate();
  const std::string error = store.failure(slot, IoRequest::Kind::write, {0, 0, ENOSPC}).what();
  EXPECT_THAT(error, HasSubstr(directory_.string()));
  EXPECT_THAT(error, HasSubstr("No space left on device"));
  const DeviceError early = store.failure(slot, IoRequest::Kind::read, {0, 4096, 0, 4 * store.slot_bytes()});
  EXPECT_THAT(early.what(), HasSubstr("ended after 4096 of 262144 bytes"));
  EXPECT_EQ(early.code(), ExitCode::device);
}

TEST(StoreSlotFileDeathTest, MisuseIsABrokenInvariant) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto engine = make_io_engine({.depth = 4});
  SlotStore store({.directories = {testing::TempDir()}, .slot_bytes = 64 * kib, .slot_count = 1}, *engine);
  const SlotId slot = store.allocate();
  EXPECT_DEATH(store.allocate(), "all taken");
  store.release(slot);
  EXPECT_DEATH(store.release(slot), "slot 0 of 1");
  EXPECT_DEATH(static_cast<void>(store.location(SlotId::none)), "slot");
}

}  // namespace
}  // namespace spillway
