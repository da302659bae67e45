// What the doctor says of machines that are written by hand, each with one thing wrong; and its own checks, broken on
// purpose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "base/bytes.h"
#include "base/error.h"
#include "doctor/examine.h"
#include "doctor/gather.h"
#include "doctor/report.h"
#include "scratch_folder.h"

namespace spillway {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

DirectoryFacts good_directory() {
  DirectoryFacts d;
  d.path = "/data";
  d.kind = DiskKind::nvme;
  d.device = "ext4 on 259:1";
  d.free_bytes = 500 * gib;
  d.flush_seconds = 0.01;
  d.rate.emplace();
  d.rate->read_bytes_per_second = 3e9;
  d.rate->write_bytes_per_second = 2e9;
  return d;
}

MachineFacts good_machine() {
  MachineFacts m;
  m.processor = {"a processor", "avx2 fma f16c avx512f", 4};
  m.memory_bytes = 32 * gib;
  m.unlimited_bytes = 20 * gib;
  m.available_bytes = 20 * gib;
  m.huge_pages = "madvise";
  m.most_mappings = 65530;
  m.most_open_files = 1024;
  m.most_open_files_allowed = 4096;
  m.io_engine = "io_uring, 8 requests of 4.00 MiB";
  m.wall_seconds = 1800000000;
  m.clock_read_seconds = 30e-9;
  m.clock_source = "tsc";
  m.rates.emplace();
  m.rates->threads = 4;
  m.rates->f32_flops_per_second = 200e9;
  m.rates->memory_bytes_per_second = {10e9, 30e9};
  m.directories = {good_directory()};
  return m;
}

// The findings that are not ok.
std::vector<Finding> complaints(const MachineFacts& facts) {
  std::vector<Finding> findings = examine(facts);
  std::erase_if(findings, [](const Finding& f) { return f.verdict == Verdict::ok; });
  return findings;
}
std::vector<Finding> complaints(const DirectoryFacts& directory) {
  MachineFacts facts = good_machine();
  facts.directories = {directory};
  return complaints(facts);
}

auto is(Verdict verdict, const std::string& check, const std::string& what, const std::string& fix) {
  return AllOf(Field(&Finding::verdict, verdict), Field(&Finding::check, HasSubstr(check)),
               Field(&Finding::what, HasSubstr(what)), Field(&Finding::fix, HasSubstr(fix)));
}

#define EXPECT_ONE(facts, ...)                            \
  do {                                                    \
    const std::vector<Finding> found = complaints(facts); \
    ASSERT_EQ(found.size(), 1U);                          \
    EXPECT_THAT(found.front(), is(__VA_ARGS__));          \
  } while (false)

TEST(Doctor, HasNothingToSayOfAGoodMachine) {
  EXPECT_THAT(complaints(good_machine()), IsEmpty());
  for (const char* check :
       {"processor", "memory", "open files", "io_uring", "clock", "accelerator", "numbers", "computing in f32",
        "memory bandwidth", "space in /data", "direct I/O in /data", "disk check in /data", "bandwidth of /data"})
    EXPECT_THAT(examine(good_machine()), Contains(is(Verdict::ok, check, "", ""))) << check;
}

TEST(Doctor, KnowsAnOldProcessorAndAQuota) {
  MachineFacts m = good_machine();
  m.processor.features = "";
  m.rates.reset();
  EXPECT_ONE(m, Verdict::warning, "processor", "without AVX2", "pass the host's features on");
  m = good_machine();
  m.processor_quota = 1.5;
  EXPECT_ONE(m, Verdict::warning, "quota", "1.5 processors' time of the 4", "--threads 1");
}

TEST(Doctor, KnowsLittleMemoryAndWhoLimitsIt) {
  MachineFacts m = good_machine();
  m.available_bytes = 600 * mib;
  EXPECT_ONE(m, Verdict::warning, "memory", "by the limit of a container", "raise the memory limit");
  m.available_bytes = 100 * mib;
  EXPECT_ONE(m, Verdict::problem, "memory", "100 MiB free", "raise the memory limit");
  m.unlimited_bytes = m.available_bytes;
  EXPECT_ONE(m, Verdict::problem, "memory", "only toy models", "end what else");
  m = good_machine();
  m.huge_pages = "never";
  EXPECT_ONE(m, Verdict::warning, "huge pages", "", "transparent_hugepage");
  m = good_machine();
  m.most_mappings = 1000;
  EXPECT_ONE(m, Verdict::warning, "mappings", "1000", "sysctl");
  m = good_machine();
  m.address_space_bytes = gib;
  EXPECT_ONE(m, Verdict::problem, "address space", "1.00 GiB", "ulimit -v unlimited");
}

TEST(Doctor, KnowsTightLimits) {
  MachineFacts m = good_machine();
  m.most_open_files = 100;
  EXPECT_ONE(m, Verdict::warning, "open files", "100 may be open", "ulimit -n 4096");
  m.most_open_files = 10;
  EXPECT_ONE(m, Verdict::problem, "open files", "10 may be open", "ulimit -n 4096");
  m.most_open_files_allowed = 10;
  EXPECT_ONE(m, Verdict::problem, "open files", "", "limits.conf");
  m = good_machine();
  m.most_file_bytes = mib;
  EXPECT_ONE(m, Verdict::problem, "file size", "1 MiB", "ulimit -f");
}

TEST(Doctor, KnowsThatIoUringIsRefused) {
  MachineFacts m = good_machine();
  m.io_engine = "threads, since io_uring is refused (Operation not permitted)";
  EXPECT_ONE(m, Verdict::warning, "io_uring", "Operation not permitted", "io_uring_disabled");
}

TEST(Doctor, KnowsAClockThatIsWrongSlowOrGoesBack) {
  MachineFacts m = good_machine();
  m.wall_seconds = 0;
  EXPECT_ONE(m, Verdict::warning, "clock", "the date is wrong", "timedatectl");
  m = good_machine();
  m.clock_goes_on = false;
  EXPECT_ONE(m, Verdict::problem, "clock", "went back", "clock source");
  m = good_machine();
  m.clock_read_seconds = 3e-6;
  m.clock_source = "hpet";
  EXPECT_ONE(m, Verdict::warning, "clock", "3.0 us (clock source hpet)", "tsc");
}

TEST(Doctor, KnowsWrongNumbersAndSlowHardware) {
  MachineFacts m = good_machine();
  m.numeric_faults = {"AdamW gives 1 where 2 is right"};
  EXPECT_ONE(m, Verdict::problem, "numbers", "AdamW gives 1", "do not train");
  m = good_machine();
  m.rates->f32_flops_per_second = 30e9;
  EXPECT_ONE(m, Verdict::warning, "computing in f32", "30 GFLOP/s on 4 threads", "throttled");
  m = good_machine();
  m.rates->memory_bytes_per_second = {2e9};
  EXPECT_ONE(m, Verdict::warning, "memory bandwidth", "2 GB/s", "throttled");
}

TEST(Doctor, KnowsAFullASlowAndALyingDisk) {
  DirectoryFacts d = good_directory();
  d.free_bytes = 3 * gib;
  EXPECT_ONE(d, Verdict::warning, "space", "3.00 GiB free", "free some space");
  d.free_bytes = mib;
  EXPECT_ONE(d, Verdict::problem, "space", "it is full", "free some space");
  d.free_bytes = -1;
  EXPECT_ONE(d, Verdict::warning, "space", "does not say", "");
  d = good_directory();
  d.rate->write_bytes_per_second = 0.1e9;
  EXPECT_ONE(d, Verdict::warning, "bandwidth", "usually reads 2.0 and writes 1.0", "iostat");
  d = good_directory();
  d.kind = DiskKind::rotating;
  EXPECT_ONE(d, Verdict::warning, "bandwidth", "rotating", "solid-state");
  d = good_directory();
  d.disk_fault = "byte 5 of what was written was not what was read back";
  EXPECT_ONE(d, Verdict::problem, "disk check", "byte 5", "do not use this disk");
  d = good_directory();
  d.flush_seconds = 5;
  EXPECT_ONE(d, Verdict::warning, "disk check", "commits will be slow", "");
}

TEST(Doctor, KnowsADirectoryThatIsNoPlaceToSpill) {
  DirectoryFacts d = good_directory();
  d.direct = false;
  d.why_not_direct = "Invalid argument";
  EXPECT_ONE(d, Verdict::warning, "direct I/O", "Invalid argument", "O_DIRECT");
  d = good_directory();
  d.kind = DiskKind::memory;
  EXPECT_ONE(d, Verdict::warning, "direct I/O", "is in memory", "on a disk");
  d = good_directory();
  d.kind = DiskKind::network;
  EXPECT_ONE(d, Verdict::warning, "direct I/O", "on the network", "local");
  d = good_directory();
  d.refused = "the directory '/data' is not writable (Read-only file system)";
  EXPECT_ONE(d, Verdict::problem, "directory /data", "Read-only", "another directory");
}

TEST(DoctorReport, SaysVerdictCheckAndFix) {
  const std::vector<Finding> findings{{Verdict::ok, "memory", "8.00 GiB free", ""},
                                      {Verdict::problem, "open files", "10 may be open", "ulimit -n 4096"}};
  const std::string text = text_of(findings, false);
  EXPECT_EQ(text,
            "ok        memory: 8.00 GiB free\nproblem   open files: 10 may be open\n          -> ulimit -n 4096\n\n"
            "1 problem, 0 warnings\n");
  EXPECT_THAT(text_of(findings, true), HasSubstr("\x1b[31mproblem \x1b[0m  open files"));
  const auto json = nlohmann::json::parse(json_of(findings));
  EXPECT_EQ(json["problems"], 1);
  EXPECT_EQ(json["warnings"], 0);
  EXPECT_EQ(json["checks"][1]["verdict"], "problem");
  EXPECT_EQ(json["checks"][1]["fix"], "ulimit -n 4096");
}

// --- What is asked of this machine ---

TEST(DoctorGather, ADirectoryThatIsNoneIsAFactAndNoError) {
  const ScratchFolder scratch;
  const DirectoryFacts missing = gather_directory(scratch / "missing", {.measure = false});
  EXPECT_THAT(missing.refused, HasSubstr("missing"));
  const DirectoryFacts file = gather_directory(scratch.file("file", ""), {.measure = false});
  EXPECT_THAT(file.refused, Not(IsEmpty()));
}

TEST(DoctorGather, ChecksADirectoryThatIsFine) {
  const ScratchFolder scratch;
  const DirectoryFacts facts = gather_directory(scratch.path(), {.measure = false});
  EXPECT_EQ(facts.refused, "");
  EXPECT_EQ(facts.disk_fault, "");
  EXPECT_GT(facts.free_bytes, 0);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path())) << "nothing is left behind";
}

TEST(DoctorGather, MemoryIsNoDisk) {
  const std::filesystem::path shared = "/dev/shm";
  if (!std::filesystem::is_directory(shared)) GTEST_SKIP() << "no /dev/shm";
  const ScratchFolder scratch(shared);
  const DirectoryFacts facts = gather_directory(scratch.path(), {.measure = false});
  if (facts.device.find("tmpfs") == std::string::npos) GTEST_SKIP() << "/dev/shm is " << facts.device;
  EXPECT_EQ(facts.kind, DiskKind::memory);
}

TEST(DoctorGather, ReadsTheQuotaOfAContainer) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch / "sys/fs/cgroup/cpu");
  EXPECT_EQ(processor_quota(scratch.path()), 0);
  scratch.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  scratch.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processor_quota(scratch.path()), 3);
  scratch.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(processor_quota(scratch.path()), 0);
  scratch.file("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(processor_quota(scratch.path()), 1.5);
  scratch.file("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(processor_quota(scratch.path()), 0);
}

TEST(DoctorGather, SeesTheLimitOfThisProcess) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = 40;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  const MachineFacts facts = gather({}, {.measure = false});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(facts.most_open_files, 40);
  EXPECT_THAT(examine(facts), Contains(is(Verdict::problem, "open files", "40 may be open", "")));
  EXPECT_THAT(facts.numeric_faults, IsEmpty());
  EXPECT_TRUE(facts.clock_goes_on);
  EXPECT_GT(facts.memory_bytes, 0);
  EXPECT_LE(facts.available_bytes, facts.unlimited_bytes);
}

// A disk that flips one bit on its way back, and one that is full.
class BitFlipper : public DiskCalls {
 public:
  std::int64_t read(int descriptor, std::int64_t offset_bytes, std::span<std::byte> into) override {
    const std::int64_t bytes = DiskCalls::read(descriptor, offset_bytes, into);
    if (offset_bytes == 3 * mib) into[1000] ^= std::byte{0x10};
    return bytes;
  }
};
class FullDisk : public DiskCalls {
 public:
  std::int64_t write(int, std::int64_t, std::span<const std::byte>) override { return -ENOSPC; }
};

TEST(DoctorDisk, ReadsBackWhatItWrote) {
  const ScratchFolder scratch;
  DirectoryFacts facts;
  check_disk(scratch.path(), system_disk_calls(), facts);
  EXPECT_EQ(facts.disk_fault, "");
  BitFlipper flipper;
  check_disk(scratch.path(), flipper, facts);
  EXPECT_THAT(facts.disk_fault, HasSubstr("byte 3146728 "));
  FullDisk full;
  EXPECT_THROW(check_disk(scratch.path(), full, facts), DeviceError);
}

// Computes as the real one does, then flips a bit of the first number.
class BrokenKernel : public Kernel {
 public:
  explicit BrokenKernel(std::unique_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {}
  std::int64_t tasks() const override { return kernel_->tasks(); }
  std::int64_t scratch_bytes() const override { return kernel_->scratch_bytes(); }
  void run(std::int64_t task, const KernelArgs& args) const override {
    kernel_->run(task, args);
    if (task + 1 == tasks()) args.writes[0][0] ^= std::byte{1};
  }

 private:
  std::unique_ptr<Kernel> kernel_;
};

TEST(DoctorNumbers, AFlippedBitIsFound) {
  EXPECT_THAT(check_numbers(false), IsEmpty());
  const auto broken = [](const KernelKey& key) { return std::make_unique<BrokenKernel>(make_cpu_kernel(key)); };
  const std::vector<std::string> faults = check_numbers(false, broken);
  EXPECT_THAT(faults, Contains(HasSubstr("AdamW")));
  EXPECT_THAT(faults, Contains(HasSubstr("matrix product")));
}

}  // namespace
}  // namespace spillway
