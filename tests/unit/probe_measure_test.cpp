#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "model/programs.h"
#include "probe/buffer.h"
#include "probe/probe.h"
#include "probe/rate_cache.h"
#include "scratch_folder.h"
#include "sim/op_rates.h"
#include "tiny_llama.h"

namespace spillway {
namespace {

MachineRates nothing_known() {
  MachineRates rates = assumed_rates();
  rates.identity = identify_machine();
  rates.threads = 2;
  return rates;
}

TEST(MeasureOps, KnowsEveryClassOfAProgramAfterwardsAndMeasuresNoneTwice) {
  const Model model(tiny_llama(), DType::f32, Purpose::training, Cut{});
  const TrainingProgram training = record_training(model, {1, 32, 2, UpdateWay::after});
  KernelCache kernels;
  kernels.make_all(training.program);
  MachineRates rates = nothing_known();
  const ProbeLimits limits{30, 32 * mib, false};
  const OpClasses classes = classes_of(training.program);
  EXPECT_EQ(measure_ops(training.program, kernels, 65536, limits, rates), std::ssize(classes.classes));
  for (const OpClass& what : classes.classes) {
    ASSERT_NE(rates.find(what), nullptr) << what.op << ' ' << what.shape;
    EXPECT_GT(rates.find(what)->seconds, 0) << what.op;
    EXPECT_EQ(op_estimate(what, rates).source, RateSource::measured);
  }
  EXPECT_EQ(measure_ops(training.program, kernels, 65536, limits, rates), 0);
  EXPECT_EQ(rates.ops.size(), classes.classes.size());
}

// Notes that it ran.
class NotingKernel final : public Kernel {
 public:
  NotingKernel(std::size_t number, std::vector<std::size_t>& runs) : number_(number), runs_(runs) {}
  std::int64_t tasks() const override { return 1; }
  void run(std::int64_t, const KernelArgs&) const override { runs_.push_back(number_); }

 private:
  std::size_t number_;
  std::vector<std::size_t>& runs_;
};

TEST(MeasureOps, RunsAllOfThemBeforeAnyAgain) {
  const Model model(tiny_llama(), DType::f32, Purpose::training, Cut{});
  const TrainingProgram training = record_training(model, {1, 32, 1, UpdateWay::after});
  std::vector<std::size_t> runs;
  std::size_t made = 0;
  KernelCache kernels([&](const KernelKey&) { return std::make_unique<NotingKernel>(made++, runs); });
  kernels.make_all(training.program);
  MachineRates rates = nothing_known();
  EXPECT_EQ(measure_ops(training.program, kernels, 65536, {0, 32 * mib, false}, rates), 0);
  EXPECT_TRUE(runs.empty());
  const std::int64_t classes = measure_ops(training.program, kernels, 65536, {30, 32 * mib, false}, rates);
  ASSERT_EQ(std::ssize(runs), 8 * classes) << "one that warms up and seven";
  std::vector<std::size_t> lightest_first;
  for (auto at = runs.begin() + 2 * classes; at != runs.begin(); at -= 2) {
    EXPECT_EQ(*(at - 1), *(at - 2));
    lightest_first.push_back(*(at - 1));
  }
  for (auto at = runs.begin() + 2 * classes; at != runs.end(); at += classes) {
    EXPECT_TRUE(std::equal(lightest_first.begin(), lightest_first.end(), at));
  }
}

TEST(OpClasses, AreThoseOfEachOpOnceEach) {
  const Model model(tiny_llama(), DType::bf16, Purpose::training, Cut{});
  const TrainingProgram training = record_training(model, {1, 32, 2, UpdateWay::after});
  const OpClasses classes = classes_of(training.program);
  ASSERT_EQ(classes.of_op.size(), training.program.ops.size());
  std::vector<std::int64_t> count(classes.classes.size(), 0);
  for (std::size_t op = 0; op < training.program.ops.size(); ++op) {
    const OpClass what = class_of(training.program, training.program.ops[op]);
    EXPECT_TRUE(classes.classes[classes.of_op[op]].same_as(what)) << what.op << ' ' << what.shape;
    EXPECT_EQ(classes.classes[classes.of_op[op]].flops, what.flops);
    ++count[classes.of_op[op]];
  }
  EXPECT_EQ(classes.count, count);
  for (std::size_t a = 0; a < classes.classes.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) EXPECT_FALSE(classes.classes[a].same_as(classes.classes[b]));
  }
  EXPECT_LT(3 * classes.classes.size(), training.program.ops.size());
}

TEST(MeasureOps, LeavesOutWhatDoesNotFitInMemory) {
  const Model model(tiny_llama(), DType::f32, Purpose::training, Cut{});
  const TrainingProgram training = record_training(model, {1, 32, 1, UpdateWay::after});
  KernelCache kernels;
  kernels.make_all(training.program);
  MachineRates rates = nothing_known();
  measure_ops(training.program, kernels, 2 * mib, {30, 4096, false}, rates);
  EXPECT_LT(rates.ops.size(), classes_of(training.program).classes.size());
}

// Products of zeros take a tenth less time with AMX than those of numbers.
TEST(ProbeBuffer, IsFullOfDifferentNumbersInBf16AndF32) {
  const ProbeBuffer buffer(64 * 1024);
  std::vector<std::uint16_t> words(static_cast<std::size_t>(buffer.size_bytes()) / sizeof(std::uint16_t));
  std::memcpy(words.data(), buffer.data(), static_cast<std::size_t>(buffer.size_bytes()));
  std::set<std::uint16_t> different;
  std::int64_t negative = 0;
  for (const std::uint16_t word : words) {
    const float number =
        std::bit_cast<float>(static_cast<std::uint32_t>(word) << 16);  // and of an fp32 whose top it is
    ASSERT_GE(std::fabs(number), 0.125F) << word;
    ASSERT_LT(std::fabs(number), 2.0F) << word;
    different.insert(word);
    negative += number < 0 ? 1 : 0;
  }
  EXPECT_EQ(different.size(), 1024U);  // sign, two bits of exponent, seven of mantissa
  EXPECT_NEAR(static_cast<double>(negative) / static_cast<double>(words.size()), 0.5, 0.02);
}

TEST(MeasureUpdates, OfEachKindOfWeightAndMoments) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool packed : {false, true}) EXPECT_GT(updates_now(dtype, packed, 2, least_update_bytes, 0.01), 0);
  }
}

TEST(MeasureDisk, TakesTheFewestRequestsThatReachNineTenthsOfTheBest) {
  constexpr std::array<std::int64_t, 3> depths{8, 16, 32};
  const auto fewest = [&](const std::array<double, 3>& rates) { return fewest_in_flight(depths, rates); };
  EXPECT_EQ(fewest({1.00, 1.05, 1.12}), 16) << "8 reach less";
  EXPECT_EQ(fewest({1.00, 1.05, 1.10}), 8);
  EXPECT_EQ(fewest({1.00, 1.20, 1.00}), 16);
  EXPECT_EQ(fewest({1.00, 1.10, 1.30}), 32);
  EXPECT_EQ(fewest({1.20, 1.00, 0.80}), 8);
}

// Computing at its best, 1.1, beside the disk at its best would have a byte cost a fifth of what it did in all rounds.
TEST(MeasureDisk, TakesBothSlowdownsOfOneRoundThatIsUsual) {
  const std::vector<BesideEachOther> rounds{
      {1, 1.1, 1.0e9},  // 0.091 s of a GB
      {1, 1.9, 5.0e9},  // 0.095
      {1, 1.6, 4.0e9},  // 0.094
  };
  const BesideEachOther usual = usual_of(rounds);
  EXPECT_EQ(usual.product_beside, 1.6);
  EXPECT_NEAR(usual.compute_seconds_per_byte(), 0.375 / 4e9, 1e-15);
}

TEST(MeasureDisk, GivesRatesOfTheDeviceAndLeavesNothingBehind) {
  const ScratchFolder folder;
  const DiskRate rate = measure_disk(folder.path(), 64 * kib, {0.04, 16 * mib, false});
  EXPECT_GT(rate.read_bytes_per_second, 0);
  EXPECT_GT(rate.write_bytes_per_second, 0);
  EXPECT_GT(rate.mixed_bytes_per_second, 0);
  EXPECT_GE(rate.request_seconds, 0);
  EXPECT_GE(rate.depth, 8);
  EXPECT_LE(rate.depth, 32);
  EXPECT_EQ(rate.device, device_of(folder.path()));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  MachineRates rates;
  rates.compute_slowdown = rates.disk_slowdown = 0;
  measure_slowdowns(rate, 2, {0.04, 16 * mib, false}, rates);
  EXPECT_GE(rates.compute_slowdown, 1);
  EXPECT_GE(rates.disk_slowdown, 1);
}

// In a tree as the kernel shows it: a disk, and a partition of it that the folder lies on.
TEST(MeasureDisk, KnowsAPartitionByItsDisk) {
  const ScratchFolder folder;
  const std::string own = device_of(folder.path(), "/nowhere");
  const std::size_t number = own.rfind(' ') + 1;
  const ScratchFolder root;
  std::filesystem::create_directories(root / "devices/sda/sda1");
  std::filesystem::create_directories(root / "sys/dev/block");
  std::filesystem::create_directory_symlink(root / "devices/sda/sda1", root / ("sys/dev/block/" + own.substr(number)));
  root.file("devices/sda/dev", "4095:16\n");
  root.file("devices/sda/sda1/dev", "4095:17\n");
  EXPECT_EQ(device_of(folder.path(), root.path()), own) << "a disk of its own";
  root.file("devices/sda/sda1/partition", "1\n");
  EXPECT_EQ(device_of(folder.path(), root.path()), own.substr(0, number) + "4095:16");
  std::filesystem::remove(root / "devices/sda/dev");
  EXPECT_EQ(device_of(folder.path(), root.path()), own) << "its disk is not said";
}

TEST(MeasureProcessor, FillsInEveryRate) {
  MachineRates rates = nothing_known();
  rates.attach_seconds = 0;
  measure_processor(64 * kib, {0.1, 16 * mib, false}, rates);
  EXPECT_EQ(rates.source, RateSource::measured);
  EXPECT_GT(rates.f32_flops_per_second, 0);
  EXPECT_GT(rates.bf16_flops_per_second, 0);
  EXPECT_EQ(rates.memory_bytes_per_second.size(), 2U);
  EXPECT_GT(rates.attach_seconds, 0);
  EXPECT_GT(rates.wake_seconds, 0);
  EXPECT_GT(products_now(DType::f32, 2, 0.001), 0);
}

OpRate op(std::string shape, double seconds) {
  return {{"linear", DType::f32, std::move(shape), 1, 1}, 2, seconds, RateSource::measured};
}

TEST(RateCache, KeepsWhatItHasUnlessToldToReplaceIt) {
  const ScratchFolder folder;
  MachineRates rates = nothing_known();
  EXPECT_FALSE(load_rates(folder.path(), rates.identity, 2));
  rates.set(op("a", 1));
  share_rates(folder.path(), rates, false);
  rates.set(op("a", 5));
  rates.set(op("b", 2));
  const MachineRates all = share_rates(folder.path(), rates, false).rates;
  EXPECT_EQ(all.find(op("a", 0).what)->seconds, 1);
  EXPECT_EQ(all.find(op("b", 0).what)->seconds, 2);
  const std::optional<MachineRates> read = load_rates(folder.path(), rates.identity, 2);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->ops.size(), 2U);
  share_rates(folder.path(), rates, true);
  EXPECT_EQ(load_rates(folder.path(), rates.identity, 2)->find(op("a", 0).what)->seconds, 5);
}

TEST(RateCache, SaysWhyNothingCanBeKept) {
  const ScratchFolder folder;
  const MachineRates rates = nothing_known();
  EXPECT_EQ(share_rates(folder.path(), rates, false).failure, "");
  EXPECT_THAT(share_rates({}, rates, false).failure, testing::HasSubstr("neither XDG_CACHE_HOME nor HOME"));
  const std::filesystem::path file = folder.file("file", "");
  EXPECT_THAT(share_rates(file, rates, false).failure, testing::HasSubstr(file.string()));
  EXPECT_THAT(share_rates(file / "below", rates, false).failure, testing::HasSubstr((file / "below").string()));
  std::filesystem::remove(cache_file(folder.path(), rates.identity, rates.threads));
  std::filesystem::create_directories(cache_file(folder.path(), rates.identity, rates.threads) / "in the way");
  const SharedRates shared = share_rates(folder.path(), rates, false);
  EXPECT_THAT(shared.failure, testing::HasSubstr("cannot be kept for later: "));
  EXPECT_EQ(shared.rates.identity, rates.identity);
}

TEST(RateCache, TheFirstDiskThatIsKnownBringsItsSlowdowns) {
  const ScratchFolder folder;
  MachineRates rates = nothing_known();
  rates.disks.clear();
  rates.disk_slowdown = 1;
  share_rates(folder.path(), rates, false);
  rates.disks = assumed_rates().disks;
  rates.compute_slowdown = 1.5;
  rates.disk_slowdown = 1.25;
  share_rates(folder.path(), rates, false);
  rates.compute_slowdown = rates.disk_slowdown = 3;
  const MachineRates all = share_rates(folder.path(), rates, false).rates;
  EXPECT_EQ(all.compute_slowdown, 1.5) << "what was measured first counts";
  EXPECT_EQ(all.disk_slowdown, 1.25);
}

TEST(RateCache, NoticesAnotherMachineAndOtherThreads) {
  const ScratchFolder folder;
  const MachineRates rates = nothing_known();
  share_rates(folder.path(), rates, false);
  MachineIdentity other = rates.identity;
  other.processor = "another";
  EXPECT_FALSE(load_rates(folder.path(), other, 2));
  EXPECT_FALSE(load_rates(folder.path(), rates.identity, 1));
  // A file that was copied from another machine, under this one's name.
  std::filesystem::copy_file(cache_file(folder.path(), rates.identity, 2), cache_file(folder.path(), other, 2));
  EXPECT_FALSE(load_rates(folder.path(), other, 2));
}

TEST(RateCache, ADamagedFileIsMeasuredAnew) {
  const ScratchFolder folder;
  MachineRates rates = nothing_known();
  rates.set(op("a", 1));
  folder.file(cache_file("", rates.identity, 2).string(), "{");
  EXPECT_FALSE(load_rates(folder.path(), rates.identity, 2));
  share_rates(folder.path(), rates, false);
  EXPECT_TRUE(load_rates(folder.path(), rates.identity, 2));
}

}  // namespace
}  // namespace spillway
