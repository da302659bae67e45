// Slot files that outlive the process: names, locks, heads, holders of slots, checksums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/bytes.h"
#include "scratch_folder.h"
#include "store/aligned_buffer.h"
#include "store/slot_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t slot_bytes = 8 * kib;

class StoreKept : public testing::Test {
 protected:
  SlotStoreOptions options(std::int64_t slots, int files = 1, std::int64_t reserved = 0) const {
    return {.directories = std::vector<fs::path>(static_cast<std::size_t>(files), scratch_.path()),
            .slot_bytes = slot_bytes,
            .slot_count = slots,
            .reserved_slots = reserved,
            .keep = true};
  }
  SlotSet only_set() const {
    const std::vector<SlotSet> sets = find_slot_sets({scratch_.path()});
    EXPECT_EQ(sets.size(), 1U);
    return sets.front();
  }
  template <typename Expected>
  static std::string refusal_of(const SlotSet& set) {
    try {
      SlotStore::open(set);
    } catch (const Expected& error) {
      return error.what();
    }
    ADD_FAILURE() << "not refused";
    return "";
  }
  static void flip(const fs::path& path, std::int64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const char byte = static_cast<char>(file.get() ^ 4);
    file.seekp(offset);
    file.put(byte);
  }

  ScratchFolder scratch_;
};

TEST_F(StoreKept, SlotsAndTheirBytesAreFoundAgain) {
  const AlignedBuffer data(slot_bytes);
  RunId run;
  std::vector<std::pair<std::int32_t, std::int32_t>> places;
  {
    SlotStore store(options(7, 3));
    run = store.run();
    for (int i = 0; i < 7; ++i) {
      const SlotId slot = store.allocate();
      std::memset(data.span().data(), i, data.span().size());
      store.write_slot(slot, data.span());
      places.push_back(store.place_of(slot));
    }
    store.flush();
  }
  const SlotSet set = only_set();
  EXPECT_EQ(set.run, run);
  ASSERT_EQ(set.paths.size(), 3U);
  const auto store = SlotStore::open(set);
  EXPECT_EQ(store->slot_bytes(), slot_bytes);
  EXPECT_EQ(store->slot_count(), 7);
  EXPECT_EQ(store->free_count(), 7);
  for (int i = 0; i < 7; ++i) {
    const auto [file, index] = places[static_cast<std::size_t>(i)];
    const SlotId slot = store->slot_at(file, index);
    ASSERT_NE(slot, SlotId::none);
    store->read_slot(slot, data.span());
    EXPECT_EQ(data.span().front(), static_cast<std::byte>(i));
    EXPECT_EQ(data.span().back(), static_cast<std::byte>(i));
  }
  EXPECT_EQ(store->slot_at(0, 3), SlotId::none);
  EXPECT_EQ(store->slot_at(3, 0), SlotId::none);
}

TEST_F(StoreKept, TheFilesAreReservedInFull) {
  const SlotStore store(options(16));
  struct stat info {};
  ASSERT_EQ(stat(store.path(0).c_str(), &info), 0);
  EXPECT_EQ(info.st_size, slot_file_head_bytes + 16 * slot_bytes);
  EXPECT_GE(info.st_blocks * 512, info.st_size);
}

TEST_F(StoreKept, ASecondRunIsRefusedWithTheProcessNamed) {
  const SlotStore store(options(2));
  const std::string text = refusal_of<UserError>(only_set());
  EXPECT_THAT(text, HasSubstr(store.path(0).string()));
  EXPECT_THAT(text, HasSubstr("is in use"));
  EXPECT_THAT(text,
              testing::AnyOf(HasSubstr(fmt::format("by process {}", getpid())), testing::Not(HasSubstr("process"))));
  EXPECT_THROW(remove_slot_set(only_set()), UserError);
  EXPECT_TRUE(fs::exists(store.path(0)));
}

// All files are locked before any is read, so the one that is in use decides, whichever it is.
TEST_F(StoreKept, OneFileInUseIsEnough) {
  { const SlotStore store(options(4, 2)); }
  const SlotSet set = only_set();
  flip(set.paths[0], 20);
  const SpillFile held = SpillFile::open(set.paths[1]);
  EXPECT_THAT(refusal_of<UserError>(set), HasSubstr("is in use"));
}

TEST_F(StoreKept, AFlippedBitInTheHeadIsNamed) {
  { const SlotStore store(options(2)); }
  const SlotSet set = only_set();
  for (const std::int64_t offset : {0, 9, 13, 30, 45, 1000, 4095}) {
    flip(set.paths[0], offset);
    const std::string text = refusal_of<DeviceError>(set);
    EXPECT_THAT(text, HasSubstr(set.paths[0].string()));
    EXPECT_THAT(text, HasSubstr("offset 0"));
    flip(set.paths[0], offset);
  }
  SlotStore::open(set);
}

TEST_F(StoreKept, AFileUnderAnothersNameIsRefused) {
  { const SlotStore store(options(4, 2)); }
  SlotSet set = only_set();
  std::swap(set.paths[0], set.paths[1]);
  EXPECT_THAT(refusal_of<UserError>(set), HasSubstr("file 1 of 2"));
}

TEST_F(StoreKept, AMissingFileIsNamed) {
  { const SlotStore store(options(4, 2)); }
  fs::remove(only_set().paths[1]);
  const SlotSet set = only_set();
  EXPECT_FALSE(set.complete());
  EXPECT_THAT(set.missing({"/here"}), testing::AllOf(HasSubstr("file 1 of 2"), HasSubstr("'/here'")));
}

TEST_F(StoreKept, NothingIsLeftOfAStoreThatCouldNotBeMade) {
  SlotStoreOptions asked = options(2, 2);
  asked.directories[1] = scratch_ / "nowhere";
  EXPECT_THROW(const SlotStore store(asked), UserError);
  EXPECT_TRUE(fs::is_empty(scratch_.path()));
}

TEST_F(StoreKept, OtherNamesAreNotSlotFiles) {
  for (const char* name :
       {"spillway-.slots", "spillway-0.0-of-1.slots", "spillway-00112233445566778899aabbccddeeff.slots",
        "spillway-00112233445566778899aabbccddeeff.1-of-1.slots",
        "spillway-00112233445566778899aabbccddeeff.-of-.slots", "x.slots"}) {
    scratch_.file(name, "");
  }
  EXPECT_TRUE(find_slot_sets({scratch_.path(), scratch_ / "nowhere"}).empty());
}

TEST_F(StoreKept, GrowsBetweenRuns) {
  { const SlotStore store(options(3, 2)); }
  const auto store = SlotStore::open(only_set());
  store->adopt(store->slot_at(0, 1), 5, false);
  store->grow(8, 1);
  EXPECT_EQ(store->slot_count(), 8);
  EXPECT_EQ(store->free_count(), 7);
  std::vector<SlotId> slots;
  for (int i = 0; i < 6; ++i) slots.push_back(store->allocate());
  EXPECT_FALSE(store->can_allocate(1));  // the last is the reserve's
  slots.push_back(store->allocate_reserved());
  slots.push_back(store->slot_at(0, 1));
  std::sort(slots.begin(), slots.end());
  EXPECT_EQ(std::unique(slots.begin(), slots.end()), slots.end());
  EXPECT_EQ(store->checksum(store->slot_at(0, 1)), 5U);
}

TEST_F(StoreKept, ASlotIsFreeWhenItsLastHolderReleasesIt) {
  SlotStore store(options(2));
  const SlotId slot = store.allocate();
  store.hold(std::span(&slot, 1));
  store.release(slot);
  EXPECT_EQ(store.free_count(), 1);
  store.release(slot);
  EXPECT_EQ(store.free_count(), 2);
}

TEST_F(StoreKept, AdoptedSlotsAreNotHandedOut) {
  SlotStore store(options(4));
  store.adopt(store.slot_at(0, 0), 1, false);
  store.adopt(store.slot_at(0, 2), 1, false);
  store.adopt(store.slot_at(0, 2), 1, false);
  EXPECT_EQ(store.free_count(), 2);
  store.release(store.slot_at(0, 0));
  store.release(store.slot_at(0, 2));
  EXPECT_EQ(store.free_count(), 3);
  std::vector<SlotId> slots;
  for (int i = 0; i < 3; ++i) slots.push_back(store.allocate());
  std::sort(slots.begin(), slots.end());
  EXPECT_THAT(slots, testing::ElementsAre(store.slot_at(0, 0), store.slot_at(0, 1), store.slot_at(0, 3)));
}

TEST_F(StoreKept, AllocationWaitsForWhatWasPromised) {
  SlotStore store(options(1));
  const SlotId first = store.allocate();
  std::atomic<int> told = 0;
  store.on_release([&] { ++told; });
  EXPECT_FALSE(store.can_allocate(1));
  store.promise_release();
  std::atomic<bool> released = false;
  std::jthread releaser([&] {
    released = true;
    store.release(first);
    store.end_promise();
  });
  const SlotId second = store.allocate();
  EXPECT_TRUE(released);
  EXPECT_EQ(second, first);
  releaser.join();
  EXPECT_EQ(told, 1);
}

TEST_F(StoreKept, AStoppedStoreEndsTheWaiting) {
  SlotStore store(options(1));
  store.allocate();
  store.promise_release();
  std::jthread stopper([&] { store.stop(std::make_exception_ptr(DeviceError("the commit failed"))); });
  EXPECT_THROW(store.allocate(), DeviceError);
}

TEST_F(StoreKept, WhoWaitsWithoutBlockingIsToldOfTheStop) {
  SlotStore store(options(1));
  store.allocate();
  int told = 0;
  store.on_release([&] { ++told; });
  EXPECT_FALSE(store.can_allocate(1));
  store.stop(std::make_exception_ptr(DeviceError("the commit failed")));
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(store.can_allocate(1));  // to find out why
  EXPECT_THROW(store.allocate(), DeviceError);
}

TEST_F(StoreKept, ChangedBytesDoNotVerify) {
  SlotStore store(options(2));
  const SlotId slot = store.allocate();
  const AlignedBuffer data(slot_bytes);
  store.seal(slot, data.span());
  store.verify(slot, data.span());
  data.span()[77] = std::byte{1};
  try {
    store.verify(slot, data.span());
    FAIL() << "not detected";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr(store.path(0).string()));
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("offset {}", store.location(slot).offset_bytes)));
  }
}

class FailingCalls final : public DiskCalls {
 public:
  std::int64_t read(int descriptor, std::int64_t offset_bytes, std::span<std::byte> into) override {
    if (read_failures-- > 0) return -EIO;
    if (short_reads) into = into.first(std::min<std::size_t>(into.size(), 4096));
    return DiskCalls::read(descriptor, offset_bytes, into);
  }
  std::int64_t write(int descriptor, std::int64_t offset_bytes, std::span<const std::byte> from) override {
    if (write_failures-- > 0) return -EIO;
    if (write_error != 0) return -write_error;
    return DiskCalls::write(descriptor, offset_bytes, from);
  }
  int flush(int descriptor) override {
    ++flushes;
    return flush_error != 0 ? flush_error : DiskCalls::flush(descriptor);
  }
  bool short_reads = false;
  int read_failures = 0;  // to come
  int write_failures = 0;
  int write_error = 0;
  int flush_error = 0;
  std::atomic<int> flushes = 0;
};

TEST_F(StoreKept, ShortTransfersGoOnAndFailuresAreSentences) {
  FailingCalls calls;
  SlotStoreOptions asked = options(4, 2);
  asked.calls = &calls;
  SlotStore store(asked);
  const SlotId slot = store.allocate();
  const AlignedBuffer data(slot_bytes);
  std::memset(data.span().data(), 7, data.span().size());
  store.write_slot(slot, data.span());
  calls.short_reads = true;
  const AlignedBuffer back(slot_bytes);
  store.read_slot(slot, back.span());
  EXPECT_EQ(std::memcmp(data.span().data(), back.span().data(), data.span().size()), 0);
  calls.write_error = ENOSPC;
  try {
    store.write_slot(slot, data.span());
    FAIL() << "not noticed";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("No space left"));
  }
  calls.flushes = 0;
  store.flush();
  EXPECT_EQ(calls.flushes, 2);  // each file
  calls.flush_error = EIO;
  EXPECT_THROW(store.flush(), DeviceError);
}

TEST_F(StoreKept, AFailedReadIsTriedOnceMoreAndAFailedWriteIsNot) {
  FailingCalls calls;
  SlotStoreOptions asked = options(2);
  asked.calls = &calls;
  SlotStore store(asked);
  const SlotId slot = store.allocate();
  const AlignedBuffer data(slot_bytes);
  std::memset(data.span().data(), 7, data.span().size());
  store.write_slot(slot, data.span());
  const AlignedBuffer back(slot_bytes);
  calls.read_failures = 1;
  store.read_slot(slot, back.span());
  EXPECT_EQ(std::memcmp(data.span().data(), back.span().data(), data.span().size()), 0);
  const auto failure_of = [](const auto& transfer) -> std::string {
    try {
      transfer();
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "nothing failed";
  };
  calls.read_failures = 2;
  EXPECT_THAT(failure_of([&] { store.read_slot(slot, back.span()); }),
              AllOf(HasSubstr("reading"), HasSubstr(store.path(0).string()), HasSubstr("Input/output error")));
  calls.write_failures = 1;
  EXPECT_THAT(failure_of([&] { store.write_slot(slot, data.span()); }),
              AllOf(HasSubstr("writing"), HasSubstr(store.path(0).string()), HasSubstr("Input/output error")));
}

TEST_F(StoreKept, ACutFileHasFewerSlots) {
  { const SlotStore store(options(4)); }
  const SlotSet set = only_set();
  fs::resize_file(set.paths[0], static_cast<std::uintmax_t>(slot_file_head_bytes + 2 * slot_bytes + 100));
  EXPECT_EQ(SlotStore::open(set)->slot_count(), 2);
  fs::resize_file(set.paths[0], 100);
  EXPECT_THAT(refusal_of<DeviceError>(set), HasSubstr("ended after"));
}

}  // namespace
}  // namespace spillway
