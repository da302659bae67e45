#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "store/faulty_io.h"
#include "store/io.h"
#include "thread_slices.h"

namespace spillway {
namespace {

struct FreeAligned {
  void operator()(std::byte* data) const { ::operator delete(data, std::align_val_t(4096)); }
};
using Buffer = std::unique_ptr<std::byte, FreeAligned>;

Buffer make_buffer(std::int64_t bytes) {
  auto* const data = static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), std::align_val_t(4096)));
  std::memset(data, 0, static_cast<std::size_t>(bytes));
  return Buffer(data);
}

// A file without a name, direct where the file system allows it.
class TestFile {
 public:
  explicit TestFile(bool direct) {
    std::string path = testing::TempDir() + "/spillway-io-XXXXXX";
    descriptor_ = mkstemp(path.data());
    EXPECT_GE(descriptor_, 0) << path;
    unlink(path.c_str());
    if (direct) fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) | O_DIRECT);
  }
  ~TestFile() { close(descriptor_); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

std::vector<IoCompletion> wait_for(IoEngine& engine, std::size_t count) {
  std::vector<IoCompletion> done;
  while (done.size() < count) engine.wait(done);
  return done;
}

struct World {
  bool uring;
  bool direct;
  int depth;
  std::int64_t request_bytes;
};

void PrintTo(const World& world, std::ostream* out) {
  *out << (world.uring ? "uring" : "threads") << (world.direct ? " direct" : " buffered") << " depth " << world.depth
       << " requests of " << world.request_bytes;
}

class StoreIo : public testing::TestWithParam<World> {
 protected:
  StoreIo()
      : engine_(make_io_engine({.depth = GetParam().depth,
                                .request_bytes = GetParam().request_bytes,
                                .allow_uring = GetParam().uring,
                                .throttle_bytes_per_second = 0})),
        file_(GetParam().direct),
        number_(engine_->add_file(file_.descriptor())) {}

  ~StoreIo() override { engine_.reset(); }

  std::unique_ptr<IoEngine> engine_;
  TestFile file_;
  int number_;
};

TEST_P(StoreIo, RandomReadsAndWritesMatchAModel) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << engine_->describe());
  std::mt19937_64 random(seed);
  const std::int64_t slot_bytes = 64 * kib;
  const std::int64_t slots = 24;
  ASSERT_EQ(ftruncate(file_.descriptor(), slot_bytes * slots), 0);
  std::vector<std::byte> model(static_cast<std::size_t>(slot_bytes * slots));
  const Buffer memory = make_buffer(slot_bytes * slots);
  for (int round = 0; round < 30; ++round) {
    // Each slot at most once a round, so that the order of completion does not matter.
    std::vector<IoRequest> requests;
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      if (random() % 3 == 0) continue;
      IoRequest request;
      request.kind = random() % 2 == 0 ? IoRequest::Kind::read : IoRequest::Kind::write;
      request.file = number_;
      const std::int64_t first = static_cast<std::int64_t>(random() % 16);
      request.offset_bytes = slot * slot_bytes + first * 4096;
      request.bytes = (1 + static_cast<std::int64_t>(random()) % (16 - first) % 16) * 4096;
      request.bytes = std::clamp<std::int64_t>(request.bytes, 4096, (16 - first) * 4096);
      request.data = memory.get() + request.offset_bytes;
      request.tag = random();
      if (request.kind == IoRequest::Kind::write) {
        for (std::int64_t i = 0; i < request.bytes; ++i) request.data[i] = static_cast<std::byte>(random());
        std::memcpy(model.data() + request.offset_bytes, request.data, static_cast<std::size_t>(request.bytes));
      } else {
        std::memset(request.data, 0xee, static_cast<std::size_t>(request.bytes));
      }
      requests.push_back(request);
    }
    std::shuffle(requests.begin(), requests.end(), random);
    for (const IoRequest& request : requests) engine_->submit(request);
    const std::vector<IoCompletion> done =
        requests.empty() ? std::vector<IoCompletion>{} : wait_for(*engine_, requests.size());
    ASSERT_EQ(done.size(), requests.size());
    for (const IoRequest& request : requests) {
      const auto found = std::find_if(done.begin(), done.end(), [&](const auto& c) { return c.tag == request.tag; });
      ASSERT_NE(found, done.end());
      ASSERT_EQ(found->error, 0);
      ASSERT_EQ(found->bytes, request.bytes);
      ASSERT_EQ(std::memcmp(request.data, model.data() + request.offset_bytes, static_cast<std::size_t>(request.bytes)),
                0)
          << "round " << round;
    }
  }
  EXPECT_EQ(engine_->flush(number_), 0);
}

TEST_P(StoreIo, AReadAcrossTheEndOfTheFileIsShortWithoutError) {
  const std::int64_t file_bytes = 100000;  // not a multiple of any block
  const Buffer data = make_buffer(256 * kib);
  std::memset(data.get(), 7, static_cast<std::size_t>(file_bytes));
  {
    const int plain = fcntl(file_.descriptor(), F_GETFL);
    fcntl(file_.descriptor(), F_SETFL, plain & ~O_DIRECT);
    ASSERT_EQ(pwrite(file_.descriptor(), data.get(), static_cast<std::size_t>(file_bytes), 0), file_bytes);
    fcntl(file_.descriptor(), F_SETFL, plain);
  }
  const Buffer read = make_buffer(256 * kib);
  engine_->submit({IoRequest::Kind::read, number_, 0, read.get(), 256 * kib, 5});
  std::vector<IoCompletion> done = wait_for(*engine_, 1);
  EXPECT_EQ(done[0].tag, 5U);
  EXPECT_EQ(done[0].error, 0);
  EXPECT_EQ(done[0].bytes, file_bytes);
  EXPECT_EQ(done[0].wanted_bytes, 256 * kib);
  EXPECT_TRUE(done[0].failed());
  EXPECT_EQ(std::memcmp(read.get(), data.get(), static_cast<std::size_t>(file_bytes)), 0);
  engine_->submit({IoRequest::Kind::read, number_, 4 * mib, read.get(), 64 * kib, 6});
  done = wait_for(*engine_, 1);
  EXPECT_EQ(done[0].bytes, 0);
  EXPECT_EQ(done[0].error, 0);
}

TEST_P(StoreIo, ErrorsComeWithTheirRequest) {
  const int read_only = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(read_only, 0);
  const int wrong = engine_->add_file(read_only);
  ASSERT_EQ(ftruncate(file_.descriptor(), 64 * kib), 0);
  const Buffer data = make_buffer(128 * kib);
  engine_->submit({IoRequest::Kind::write, wrong, 0, data.get(), 64 * kib, 1});
  engine_->submit({IoRequest::Kind::read, number_, 0, data.get() + 64 * kib, 64 * kib, 2});
  std::vector<IoCompletion> done = wait_for(*engine_, 2);
  std::sort(done.begin(), done.end(), [](const auto& a, const auto& b) { return a.tag < b.tag; });
  EXPECT_EQ(done[0].error, EBADF);
  EXPECT_EQ(done[0].bytes, 0);
  EXPECT_EQ(done[1].error, 0);
  EXPECT_EQ(done[1].bytes, 64 * kib);
  engine_.reset();
  close(read_only);
}

TEST_P(StoreIo, AReadThatFailsForGoodIsAnError) {
  const int write_only = open("/dev/null", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(write_only, 0);
  const int wrong = engine_->add_file(write_only);
  const Buffer data = make_buffer(64 * kib);
  engine_->submit({IoRequest::Kind::read, wrong, 0, data.get(), 64 * kib, 3});
  const std::vector<IoCompletion> done = wait_for(*engine_, 1);
  EXPECT_EQ(done[0].tag, 3U);
  EXPECT_EQ(done[0].error, EBADF);
  EXPECT_EQ(done[0].bytes, 0);
  engine_.reset();
  close(write_only);
}

TEST_P(StoreIo, WakeEndsAWaitFromAnyThreadAndIsNotLost) {
  std::vector<IoCompletion> done;
  engine_->wake();
  engine_->wake();
  engine_->wait(done);  // woken before it began
  for (int round = 0; round < 100; ++round) {
    std::thread waker([this] { engine_->wake(); });
    engine_->wait(done);
    waker.join();
  }
  EXPECT_TRUE(done.empty());
  ASSERT_EQ(ftruncate(file_.descriptor(), 4096), 0);
  const Buffer data = make_buffer(4096);
  engine_->submit({IoRequest::Kind::read, number_, 0, data.get(), 4096, 9});
  engine_->wake();
  while (done.empty()) engine_->wait(done);
  EXPECT_EQ(done[0].tag, 9U);
}

TEST_P(StoreIo, EndsWithRequestsStillQueued) {
  ASSERT_EQ(ftruncate(file_.descriptor(), mib), 0);
  const Buffer data = make_buffer(mib);
  for (std::uint64_t tag = 0; tag < 16; ++tag) {
    const auto offset = static_cast<std::int64_t>(tag) * 64 * kib;
    engine_->submit({IoRequest::Kind::read, number_, offset, data.get() + offset, 64 * kib, tag});
  }
  std::vector<IoCompletion> done;
  engine_->wait(done);
  engine_.reset();  // before the memory goes
}

INSTANTIATE_TEST_SUITE_P(Worlds, StoreIo,
                         testing::Values(World{true, true, 16, 4 * mib}, World{true, true, 3, 4096},
                                         World{true, false, 8, 8192}, World{true, true, 1, 4096},
                                         World{false, true, 16, 4 * mib}, World{false, true, 3, 4096},
                                         World{false, false, 8, 8192}, World{false, false, 1, 4096}));

TEST(StoreIoEngine, SaysWhichItIsAndWhy) {
  const auto threads = make_io_engine({.allow_uring = false});
  EXPECT_THAT(threads->describe(), testing::HasSubstr("pread and pwrite"));
  EXPECT_THAT(threads->describe(), testing::HasSubstr("io_uring is turned off"));
  const auto any = make_io_engine({});
  EXPECT_THAT(any->describe(), testing::HasSubstr("io_uring"));
}

// From now on, in this process and for good, as container runtimes do it.
bool refuse_system_call(unsigned number) {
  std::array<sock_filter, 4> filter{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Ends the process: 0 where threads serve a write and a read after the ring was refused, and it is said why.
[[noreturn]] void use_engine_without(unsigned system_call) {
  if (!refuse_system_call(system_call)) std::_Exit(2);
  const auto engine = make_io_engine({.depth = 2});
  if (engine->describe().find("pread and pwrite") == std::string::npos) std::_Exit(3);
  if (engine->describe().find("Operation not permitted") == std::string::npos) std::_Exit(4);
  const TestFile file(false);
  const int number = engine->add_file(file.descriptor());
  const Buffer data = make_buffer(8192);
  for (const IoRequest::Kind kind : {IoRequest::Kind::write, IoRequest::Kind::read}) {
    engine->submit({kind, number, 0, data.get(), 8192, 1});
    if (wait_for(*engine, 1).front().bytes != 8192) std::_Exit(5);
  }
  std::_Exit(0);
}

TEST(StoreIoEngine, ARingThatMayNotBeMadeOrNotBeUsedIsReplacedByThreads) {
  EXPECT_EXIT(use_engine_without(SYS_io_uring_setup), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(use_engine_without(SYS_io_uring_enter), testing::ExitedWithCode(0), "");
}

class StoreFaults : public testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<IoEngine> inner() { return make_io_engine({.depth = 4, .allow_uring = GetParam()}); }
};

// Otherwise it goes on up to a slice of the computing threads later than what it waits for has ended.
TEST(StoreThread, ThatRunsPromptlyHasAShortSliceAndIsAsNiceAsBefore) {
  if (slice_ns_of(0) == 0) GTEST_SKIP() << "this kernel has no slices to ask for; Linux 6.12 has";
  std::thread([] {
    EXPECT_EQ(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 3), 0);
    EXPECT_GT(slice_ns_of(0), prompt_slice_ns);
    run_promptly();
    EXPECT_EQ(slice_ns_of(0), prompt_slice_ns);
    EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())), 3);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  }).join();
}

TEST_P(StoreFaults, TheChosenRequestFails) {
  const TestFile file(false);
  ASSERT_EQ(ftruncate(file.descriptor(), mib), 0);
  const Buffer data = make_buffer(mib);
  for (const int error : {EIO, ENOSPC}) {
    for (const bool fail_after : {false, true}) {
      const auto engine = make_faulty_engine(inner(), {.fail_at = 3, .error = error, .fail_after = fail_after});
      const int number = engine->add_file(file.descriptor());
      for (std::uint64_t tag = 0; tag < 8; ++tag) {
        const auto offset = static_cast<std::int64_t>(tag) * 64 * kib;
        engine->submit({IoRequest::Kind::write, number, offset, data.get() + offset, 64 * kib, tag});
      }
      for (const IoCompletion& completion : wait_for(*engine, 8)) {
        const bool fails = fail_after ? completion.tag >= 3 : completion.tag == 3;
        EXPECT_EQ(completion.error, fails ? error : 0) << completion.tag;
        EXPECT_EQ(completion.bytes, fails ? 0 : 64 * kib) << completion.tag;
      }
    }
  }
}

TEST_P(StoreFaults, ShortAndReorderedCompletionsAllArrive) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const TestFile file(false);
  ASSERT_EQ(ftruncate(file.descriptor(), mib), 0);
  const Buffer data = make_buffer(mib);
  const auto engine = make_faulty_engine(inner(), {.short_share = 0.3, .delay_share = 0.5, .seed = seed});
  const int number = engine->add_file(file.descriptor());
  for (std::uint64_t tag = 0; tag < 128; ++tag) {
    const auto offset = static_cast<std::int64_t>(tag) * 8 * kib;
    engine->submit({IoRequest::Kind::read, number, offset, data.get() + offset, 8 * kib, tag});
  }
  std::vector<bool> seen(128, false);
  int shorter = 0;
  for (const IoCompletion& completion : wait_for(*engine, 128)) {
    EXPECT_FALSE(seen[completion.tag]);
    seen[completion.tag] = true;
    EXPECT_EQ(completion.error, 0);
    EXPECT_EQ(completion.wanted_bytes, 8 * kib);
    if (completion.failed()) ++shorter;
  }
  EXPECT_GT(shorter, 0);
  EXPECT_LT(shorter, 128);
}

TEST_P(StoreFaults, AThrottledEngineStillDoesEverythingAndWakes) {
  const TestFile file(false);
  ASSERT_EQ(ftruncate(file.descriptor(), mib), 0);
  const Buffer data = make_buffer(mib);
  const auto engine = make_io_engine({.depth = 4, .allow_uring = GetParam(), .throttle_bytes_per_second = 64 * mib});
  const int number = engine->add_file(file.descriptor());
  std::vector<IoCompletion> done;
  engine->wake();
  engine->wait(done);
  EXPECT_TRUE(done.empty());
  for (std::uint64_t tag = 0; tag < 16; ++tag) {
    const auto offset = static_cast<std::int64_t>(tag) * 64 * kib;
    engine->submit({IoRequest::Kind::write, number, offset, data.get() + offset, 64 * kib, tag});
  }
  std::thread waker([&engine] { engine->wake(); });
  EXPECT_EQ(wait_for(*engine, 16).size(), 16U);
  waker.join();
}

INSTANTIATE_TEST_SUITE_P(Engines, StoreFaults, testing::Bool());

}  // namespace
}  // namespace spillway
