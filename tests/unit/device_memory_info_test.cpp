#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "device/memory_info.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// A made-up machine: files below a directory of its own.
class DeviceMemoryInfo : public testing::Test {
 protected:
  DeviceMemoryInfo()
      : root_(fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    write("proc/meminfo", "MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable:    8000 kB\n");
    write("proc/self/cgroup", "");
  }
  ~DeviceMemoryInfo() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  fs::path root_;
};

TEST_F(DeviceMemoryInfo, WithoutLimitsItIsWhatTheMachineHas) {
  EXPECT_EQ(available_memory_bytes(root_), 8000 * kib);
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "1000\n");
  EXPECT_EQ(available_memory_bytes(root_), 8000 * kib);
}

TEST_F(DeviceMemoryInfo, TheTightestAncestorCountsAndCacheIsFree) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/memory.max", "3000000\n");
  write("sys/fs/cgroup/a/memory.current", "2500000\n");
  write("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1000000\n");
  write("sys/fs/cgroup/a/b/memory.max", "2000000\n");
  write("sys/fs/cgroup/a/b/memory.current", "400000\n");
  EXPECT_EQ(available_memory_bytes(root_), 1500000);
}

TEST_F(DeviceMemoryInfo, TheFirstVersionOfControlGroupsCounts) {
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/x\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1900000\n");
  write("sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 300000\n");
  EXPECT_EQ(available_memory_bytes(root_), 400000);
}

TEST_F(DeviceMemoryInfo, AGroupOverItsLimitHasNothingLeft) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "1000\n");
  write("sys/fs/cgroup/memory.current", "2000\n");
  EXPECT_EQ(available_memory_bytes(root_), 0);
}

TEST_F(DeviceMemoryInfo, AMissingProcIsAnError) {
  fs::remove(root_ / "proc/meminfo");
  EXPECT_THROW(available_memory_bytes(root_), DeviceError);
}

TEST_F(DeviceMemoryInfo, NamesTheProcessorAndTheFeaturesThatMatter) {
  write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A Fast One\nflags\t\t: fpu avx2 fma amx_bf16 sse\n");
  const ProcessorInfo info = processor_info(root_);
  EXPECT_EQ(info.model, "A Fast One");
  EXPECT_EQ(info.features, "avx2 fma amx_bf16");
  EXPECT_GE(info.cpus, 1);
  EXPECT_EQ(processor_info(root_ / "nowhere").model, "unknown");
}

TEST(DeviceMemoryInfoHere, ResidentMemoryFollowsUse) {
  const std::int64_t before = rss_bytes();
  std::vector<char> used(static_cast<std::size_t>(64 * mib));
  std::memset(used.data(), 1, used.size());
  EXPECT_GE(rss_bytes() - before, 60 * mib);
  EXPECT_GE(peak_rss_bytes(), before + 60 * mib);
  EXPECT_GT(available_memory_bytes(), 0);
}

}  // namespace
}  // namespace spillway
