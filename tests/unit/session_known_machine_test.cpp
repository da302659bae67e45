// The rates of disks that a run is planned with: kept of this machine, or given by a file of any.
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/machine_file.h"
#include "probe/probe.h"
#include "probe/rate_cache.h"
#include "scoped_variable.h"
#include "scratch_folder.h"
#include "session/known_machine.h"
#include "session/session.h"
#include "small_file_system.h"

namespace spillway {
namespace {

constexpr int threads = 2;
constexpr std::int64_t page_bytes = 64 * kib;
constexpr const char* other_device = "ext4 on 4095:1";

class KnownDisks : public testing::Test {
 protected:
  void SetUp() override {
    choices_.threads = threads;
    choices_.spill_dirs = {spill_.path()};
  }

  // Of the spill directory, when it was on this device.
  DiskRate disk(const std::string& device, double bytes_per_second) const {
    DiskRate made = assumed_rates().disks.front();
    made.directory = spill_.path().string();
    made.device = device;
    made.block_bytes = page_bytes;
    made.read_bytes_per_second = bytes_per_second;
    made.source = RateSource::measured;
    return made;
  }

  static MachineRates rates_with(std::vector<DiskRate> disks) {
    MachineRates rates = assumed_rates();
    rates.identity = identify_machine();
    rates.threads = threads;
    rates.disks = std::move(disks);
    return rates;
  }

  DiskRate recalled(const std::string& machine_file = "") const {
    return recall_machine(machine_file, choices_, page_bytes).disk;
  }

  bool measures() const {
    KernelCache kernels;
    return know_machine("", choices_, {}, kernels, page_bytes, 16 * mib).measured;
  }

  const ScratchFolder cache_;
  const ScopedVariable variable_{"XDG_CACHE_HOME", cache_.path()};
  const ScratchFolder spill_;
  RunChoices choices_;
};

TEST(KnownUpdates, AreTheLargestOfTheSameWeightsAndMoments) {
  MachineRates rates = assumed_rates();
  EXPECT_EQ(known_update_bandwidth(rates, DType::bf16, false), 0) << "nothing was measured";
  const auto add = [&](DType dtype, const std::string& moments, double bytes, double seconds) {
    rates.ops.push_back({{"adamw", dtype, "bf16[9,9] " + moments + "[9,9] ->", 0, bytes}, threads, seconds});
  };
  add(DType::bf16, "f32", 26e6, 2e-3);
  add(DType::bf16, "f32", 13e6, 1e-4);
  add(DType::bf16, "f32", 26e3, 1e-9);
  add(DType::f32, "f32", 28e6, 4e-3);
  add(DType::bf16, "u8", 14e6, 7e-3);
  rates.ops.push_back({{"linear_dw", DType::bf16, "f32[9,9]", 0, 1e9}, threads, 1e-3});
  EXPECT_DOUBLE_EQ(known_update_bandwidth(rates, DType::bf16, false), 13e9);
  EXPECT_DOUBLE_EQ(known_update_bandwidth(rates, DType::bf16, true), 2e9);
  EXPECT_DOUBLE_EQ(known_update_bandwidth(rates, DType::f32, false), 7e9);
  EXPECT_EQ(known_update_bandwidth(rates, DType::f32, true), 0);
}

TEST_F(KnownDisks, WhatWasKeptCountsOnItsDevice) {
  share_rates(cache_directory(), rates_with({disk(device_of(spill_.path()), 123e6)}), false);
  EXPECT_DOUBLE_EQ(recalled().read_bytes_per_second, 123e6);
  EXPECT_FALSE(measures());
}

TEST_F(KnownDisks, AnotherDiskInTheSameDirectoryIsNotKnown) {
  share_rates(cache_directory(), rates_with({disk(other_device, 123e6)}), false);
  EXPECT_DOUBLE_EQ(recalled().read_bytes_per_second, assumed_rates().disks.front().read_bytes_per_second);
  EXPECT_TRUE(measures());
  EXPECT_FALSE(measures());
}

TEST_F(KnownDisks, BlocksOfAnotherSizeAreBetterThanAGuess) {
  DiskRate large = disk(device_of(spill_.path()), 123e6);
  large.block_bytes = 2 * mib;
  share_rates(cache_directory(), rates_with({large, disk(other_device, 456e6)}), false);
  EXPECT_DOUBLE_EQ(recalled().read_bytes_per_second, 123e6);
}

// One of two: the run is not to be planned as if it had that one alone, and measures the other first.
TEST_F(KnownDisks, OneThatIsNotKnownIsAssumedBesideOneThatIs) {
  const std::filesystem::path on_another_device = "/proc";
  ASSERT_NE(device_of(on_another_device), device_of(spill_.path()));
  DiskRate slow = disk(device_of(spill_.path()), 123e6);
  slow.write_bytes_per_second = slow.mixed_bytes_per_second = 123e6;
  share_rates(cache_directory(), rates_with({slow}), false);
  choices_.spill_dirs = {on_another_device, spill_.path()};
  const KnownMachine known = recall_machine("", choices_, page_bytes);
  EXPECT_EQ(known.disk.source, RateSource::predicted);
  ASSERT_EQ(known.disk_shares.size(), 2U);
  EXPECT_GT(known.disk_shares[0], known.disk_shares[1]) << "in the order of the directories";
}

// Where one fails, what was measured of the other is kept.
TEST_F(KnownDisks, OneThatFailsDoesNotTakeTheOther) {
  choices_.spill_dirs = {"/proc", spill_.path()};
  EXPECT_TRUE(measures());
  choices_.spill_dirs = {spill_.path()};
  EXPECT_EQ(recall_machine("", choices_, page_bytes).disk.source, RateSource::measured);
  EXPECT_FALSE(measures());
}

TEST_F(KnownDisks, AFileCountsByDirectoryWhateverTheDevice) {
  DiskRate elsewhere = disk("ext4 on 4095:2", 456e6);
  elsewhere.directory = "/elsewhere";
  const std::string file =
      cache_.file("machine.json", write_machine(rates_with({elsewhere, disk(other_device, 123e6)}))).string();
  EXPECT_DOUBLE_EQ(recalled(file).read_bytes_per_second, 123e6);
}

// Numbers of devices are alike on many machines; a file with two disks stands for both.
TEST_F(KnownDisks, AFileDoesNotCountByDevice) {
  DiskRate one = disk(device_of(spill_.path()), 100e6);
  one.directory = "/elsewhere";
  DiskRate other = disk(other_device, 100e6);
  other.directory = "/elsewhere 2";
  const std::string file = cache_.file("machine.json", write_machine(rates_with({one, other}))).string();
  EXPECT_DOUBLE_EQ(recalled(file).read_bytes_per_second, 200e6);
}

TEST_F(KnownDisks, CountForRunsThatAreTooSmallToMeasure) {
  share_rates(cache_directory(), rates_with({disk(device_of(spill_.path()), 123e6)}), false);
  KernelCache kernels;
  EXPECT_DOUBLE_EQ(know_machine("", choices_, {}, kernels, page_bytes, mib).disk.read_bytes_per_second, 123e6);
}

// What a run needs there is for the run to say.
TEST_F(KnownDisks, AreAssumedWhereThereIsNoRoomToMeasure) {
  const SmallFileSystem small(spill_ / "small", 8 * mib);
  if (!small.mounted()) GTEST_SKIP() << small.why_not();
  choices_.spill_dirs = {spill_ / "small"};
  KernelCache kernels;
  const KnownMachine known = know_machine("", choices_, {}, kernels, page_bytes, 16 * mib);
  EXPECT_EQ(known.disk.source, RateSource::predicted);
}

// What of the processor was measured is kept all the same.
TEST_F(KnownDisks, AreAssumedWhereMeasuringFails) {
  choices_.spill_dirs = {"/proc/self"};
  KernelCache kernels;
  const KnownMachine known = know_machine("", choices_, {}, kernels, page_bytes, 16 * mib);
  EXPECT_EQ(known.disk.source, RateSource::predicted);
  ASSERT_EQ(known.notes.size(), 1U);
  EXPECT_NE(known.notes.front().find("/proc/self"), std::string::npos) << known.notes.front();
  EXPECT_TRUE(load_rates(cache_directory(), identify_machine(), threads));
}

TEST_F(KnownDisks, OfAProbeAreThoseItWasAskedFor) {
  DiskRate large = disk(device_of(spill_.path()), 123e6);
  large.block_bytes = 4 * mib;
  DiskRate elsewhere = disk(other_device, 123e6);
  elsewhere.directory = "/elsewhere";
  share_rates(cache_directory(), rates_with({large, elsewhere}), false);
  TrainOptions options;
  options.threads = threads;
  options.spill_dir = {spill_.path().string()};
  const MachineRates rates = parse_machine(run_probe(options).json, "m.json");
  ASSERT_EQ(rates.disks.size(), 1U);
  EXPECT_EQ(rates.disks.front().directory, spill_.path().string());
  EXPECT_EQ(rates.disks.front().source, RateSource::measured);
  EXPECT_GT(rates.disks.front().depth, 0);
  EXPECT_EQ(load_rates(cache_directory(), identify_machine(), threads)->disks.size(), 3U) << "what is kept stays";
}

TEST_F(KnownDisks, AreNotLookedForWithOptionsThatARunRefuses) {
  TrainOptions options;
  options.model = "m";
  options.page_size_bytes = 5000;
  try {
    run_probe(options);
    ADD_FAILURE() << "is taken";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("page_size is 5000"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace spillway
