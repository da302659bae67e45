// The rates of disks that a run is planned with: kept of this machine, or given by a file of any.
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "formats/machine_file.h"
#include "probe/probe.h"
#include "probe/rate_cache.h"
#include "scoped_variable.h"
#include "scratch_folder.h"
#include "session/known_machine.h"

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

TEST_F(KnownDisks, AFileCountsByDirectoryWhateverTheDevice) {
  DiskRate elsewhere = disk("ext4 on 4095:2", 456e6);
  elsewhere.directory = "/elsewhere";
  const std::string file =
      cache_.file("machine.json", write_machine(rates_with({elsewhere, disk(other_device, 123e6)}))).string();
  EXPECT_DOUBLE_EQ(recalled(file).read_bytes_per_second, 123e6);
}

}  // namespace
}  // namespace spillway
