#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/machine_file.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

MachineRates full() {
  MachineRates rates = assumed_rates();
  rates.identity = {"AMD; avx2", 4, 8 * gib, "6.1.0", "onednn 2.6.3", "12-34"};
  rates.threads = 4;
  rates.memory_bytes = 8 * gib;
  rates.memory_bytes_per_second = {1e10, 1.7e10};
  rates.compute_slowdown = 1.0625;
  rates.disk_slowdown = 1.125;
  rates.source = RateSource::measured;
  rates.disks = {{"/spill", "ext4 on 8:1", 2 * mib, 1.5e9, 1e9, 1.1e9, 1e-4, RateSource::measured, 8}};
  rates.ops = {{{"linear", DType::bf16, "bf16[2,3] -> bf16[2,4]", 48, 52}, 4, 1.0 / 3, RateSource::measured}};
  return rates;
}

TEST(MachineFile, ReadsBackWhatItWrites) {
  const std::string text = write_machine(full());
  const MachineRates read = parse_machine(text, "m.json");
  EXPECT_EQ(write_machine(read), text);
  EXPECT_EQ(read.identity, full().identity);
  EXPECT_EQ(read.ops.front().seconds, 1.0 / 3);
  EXPECT_EQ(read.ops.front().what.dtype, DType::bf16);
  EXPECT_EQ(read.disks.front().source, RateSource::measured);
  EXPECT_EQ(read.disks.front().depth, 8);
}

TEST(MachineFile, AFewNumbersByHandAreEnough) {
  const MachineRates rates = parse_machine(
      R"({"_why": "two disks", "memory_bytes": "64GiB", "threads": 16, "bf16_flops_per_second": 3e12,
          "memory_bytes_per_second": 2e11, "disks": [{"read_bytes_per_second": 7e9}, {"read_bytes_per_second": 3e9,
          "write_bytes_per_second": 2e9}]})",
      "m.json");
  EXPECT_EQ(rates.memory_bytes, 64 * gib);
  EXPECT_EQ(rates.threads, 16);
  EXPECT_EQ(rates.memory_bandwidth(), 2e11);
  EXPECT_EQ(rates.f32_flops_per_second, assumed_rates().f32_flops_per_second);
  ASSERT_EQ(rates.disks.size(), 2U);
  EXPECT_EQ(rates.disks[0].write_bytes_per_second, 7e9);
  EXPECT_EQ(rates.disks[1].mixed_bytes_per_second, 2e9);
  EXPECT_EQ(rates.disks[0].source, RateSource::declared);
  EXPECT_TRUE(rates.ops.empty());
}

TEST(MachineFile, HoldsADeviceAndTheLinkToIt) {
  EXPECT_EQ(parse_machine("{}", "m.json").device_memory_bytes, 0);
  const MachineRates rates = parse_machine(
      R"({"device_memory_bytes": "80GiB", "link": {"up_bytes_per_second": 5.5e10, "copy_seconds": 1e-5,
          "map_seconds": 4e-5}})",
      "m.json");
  EXPECT_EQ(rates.device_memory_bytes, 80 * gib);
  EXPECT_EQ(rates.link.up_bytes_per_second, 5.5e10);
  EXPECT_EQ(rates.link.down_bytes_per_second, 5.5e10);
  EXPECT_EQ(rates.link.copy_seconds, 1e-5);
  EXPECT_EQ(rates.link.map_seconds, 4e-5);
  EXPECT_EQ(write_machine(parse_machine(write_machine(rates), "m.json")), write_machine(rates));
}

void expect_machine_refused(const std::string& text, const std::string& words) {
  try {
    parse_machine(text, "m.json");
    ADD_FAILURE() << text << " is taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("m.json"));
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

TEST(MachineFile, SaysWhatIsWrong) {
  expect_machine_refused("{", "no JSON (parse error at line 1, column 2");
  expect_machine_refused("[]", "no JSON object");
  expect_machine_refused(R"({"bf16_flops": 1})", "bf16_flops is 1");
  expect_machine_refused(R"({"compute_slowdown": 0.5})", "from 1 to 1000");
  for (const std::string key : {"compute_slowdown", "op_seconds", "attach_seconds", "wake_seconds"})
    expect_machine_refused("{\"" + key + "\": 1e18}", key + " is 1e+18");
  expect_machine_refused(R"({"memory_bytes_per_second": 1e300})", "from 1 to 1e+18");
  expect_machine_refused(R"({"memory_bytes_per_second": []})", "memory_bytes_per_second");
  expect_machine_refused(R"({"memory_bytes_per_second": [1, -1]})", "from 1 to");
  expect_machine_refused(R"({"memory_bytes": "many"})", "many");
  expect_machine_refused(R"({"disks": [{"write_bytes_per_second": 1}]})", "read_bytes_per_second is missing");
  expect_machine_refused(R"({"disks": [7]})", "objects");
  expect_machine_refused(R"({"bf16_flops_per_second": 0})", "bf16_flops_per_second is 0");
  for (const std::string rate : {"1e-305", "1e308"})
    expect_machine_refused(R"({"disks": [{"read_bytes_per_second": )" + rate + "}]}", "from 1 to 1e+18");
  expect_machine_refused(R"({"ops": [{"op": "linear", "seconds": 1}]})", "flops or bytes");
  expect_machine_refused(R"({"ops": [{"op": "linear", "bytes": 1, "seconds": 0}]})", "seconds is 0");
  expect_machine_refused(R"({"ops": [{"op": "linear", "bytes": 1, "seconds": 1, "dtype": "i32"}]})", "f32 or bf16");
  expect_machine_refused(R"({"source": "guessed"})", "guessed");
}

}  // namespace
}  // namespace spillway
