#include <gtest/gtest.h>

#include "machine/rates.h"

namespace spillway {
namespace {

OpClass product(double flops, std::string shape) { return {"linear", DType::f32, std::move(shape), flops, 1}; }

MachineRates simple() {
  MachineRates rates = assumed_rates();
  rates.threads = 2;
  rates.f32_flops_per_second = 1e9;
  rates.bf16_flops_per_second = 2e9;
  rates.memory_bytes_per_second = {1e9, 4e9};
  rates.op_seconds = 0;
  return rates;
}

TEST(Rates, RooflineIsTheSlowerOfComputingAndMovingOnAllThreads) {
  const MachineRates rates = simple();
  EXPECT_DOUBLE_EQ(roofline_seconds({"x", DType::f32, "", 3e9, 4e9}, rates), 3.0);
  EXPECT_DOUBLE_EQ(roofline_seconds({"x", DType::bf16, "", 3e9, 4e9}, rates), 1.5);
  EXPECT_DOUBLE_EQ(roofline_seconds({"x", DType::bf16, "", 1e9, 8e9}, rates), 2.0);
}

TEST(Rates, AnOpTakesItsOwnRateThenTheNearestShapesThenTheRoofline) {
  MachineRates rates = simple();
  EXPECT_EQ(op_estimate(product(1e9, "a"), rates).source, RateSource::roofline);
  rates.set({product(1e9, "a"), 2, 2.0, RateSource::measured});      // half the roofline's rate
  rates.set({product(100e9, "b"), 2, 400.0, RateSource::measured});  // a quarter
  EXPECT_EQ(op_estimate(product(1e9, "a"), rates).source, RateSource::measured);
  EXPECT_DOUBLE_EQ(op_estimate(product(1e9, "a"), rates).seconds, 2.0);
  const OpEstimate near_a = op_estimate(product(3e9, "c"), rates);
  EXPECT_EQ(near_a.source, RateSource::predicted);
  EXPECT_DOUBLE_EQ(near_a.seconds, 6.0);
  EXPECT_DOUBLE_EQ(op_estimate(product(50e9, "c"), rates).seconds, 200.0);
  OpClass other = product(1e9, "a");
  other.dtype = DType::bf16;
  EXPECT_EQ(op_estimate(other, rates).source, RateSource::roofline);
}

TEST(Rates, ARateCountsAtItsThreadsAloneAndIsReplaced) {
  MachineRates rates = simple();
  rates.set({product(1e9, "a"), 1, 4.0, RateSource::measured});
  EXPECT_EQ(rates.find(product(1e9, "a")), nullptr);
  rates.set({product(1e9, "a"), 2, 3.0, RateSource::measured});
  rates.set({product(1e9, "a"), 2, 2.5, RateSource::measured});
  ASSERT_NE(rates.find(product(1e9, "a")), nullptr);
  EXPECT_EQ(rates.find(product(1e9, "a"))->seconds, 2.5);
  EXPECT_EQ(rates.ops.size(), 2U);
}

DiskRate disk(std::string device, double rate) {
  DiskRate made;
  made.device = std::move(device);
  made.read_bytes_per_second = 2 * rate;
  made.write_bytes_per_second = rate;
  made.mixed_bytes_per_second = rate;
  made.depth = 8;
  return made;
}

TEST(Rates, DirectoriesShareSlotsByTheBandwidthOfTheirDisks) {
  const std::vector<DiskRate> two{disk("a", 3e9), disk("b", 1e9)};
  const std::vector<double> shares = disk_shares(two);
  EXPECT_DOUBLE_EQ(shares[0], 0.75);
  EXPECT_DOUBLE_EQ(shares[1], 0.25);
  EXPECT_DOUBLE_EQ(together(two, shares).mixed_bytes_per_second, 4e9);
  EXPECT_DOUBLE_EQ(together(two, shares).read_bytes_per_second, 8e9);
  const std::vector<double> even{0.5, 0.5};
  EXPECT_DOUBLE_EQ(together(two, even).mixed_bytes_per_second, 2e9);
  EXPECT_EQ(together(two, shares).depth, 16);
}

TEST(Rates, TwoDirectoriesOnOneDiskAreOneDisk) {
  const std::vector<DiskRate> disks{disk("a", 2e9), disk("a", 2e9), disk("b", 2e9)};
  const std::vector<double> shares = disk_shares(disks);
  EXPECT_DOUBLE_EQ(shares[0], 0.25);
  EXPECT_DOUBLE_EQ(shares[2], 0.5);
  EXPECT_DOUBLE_EQ(together(disks, shares).mixed_bytes_per_second, 4e9);
  EXPECT_EQ(together(disks, shares).depth, 16);
}

TEST(Rates, TwoFileSystemsOnOneDiskAreOneDisk) {
  const std::vector<DiskRate> disks{disk("ext4 on 8:0", 2e9), disk("xfs on 8:0", 2e9), disk("ext4 on 8:16", 2e9)};
  const std::vector<double> shares = disk_shares(disks);
  EXPECT_DOUBLE_EQ(shares[0], 0.25);
  EXPECT_DOUBLE_EQ(shares[2], 0.5);
  EXPECT_DOUBLE_EQ(together(disks, shares).mixed_bytes_per_second, 4e9);
}

TEST(Rates, AnUnknownDiskMakesSharesEqual) {
  const std::vector<DiskRate> disks{disk("a", 2e9), DiskRate{}};
  EXPECT_DOUBLE_EQ(disk_shares(disks)[0], 0.5);
  EXPECT_EQ(together(disks, disk_shares(disks)).depth, 0);
}

TEST(Rates, AFingerprintTellsIdentitiesApart) {
  MachineIdentity one{"cpu", 2, 100, "6.1", "lib", "build"};
  MachineIdentity other = one;
  EXPECT_EQ(fingerprint(one), fingerprint(other));
  other.build = "another";
  EXPECT_NE(fingerprint(one), fingerprint(other));
  other = one;
  other.cpus = 4;
  EXPECT_NE(fingerprint(one), fingerprint(other));
}

}  // namespace
}  // namespace spillway
