// What a run is left to choose is not slower, in virtual time, than what could be asked for instead.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "device/page_pool.h"
#include "plan/plan.h"
#include "same_bits.h"
#include "session/setup.h"
#include "sim/op_rates.h"
#include "under_sanitizer.h"

namespace spillway {
namespace {

// More than the search may miss: not all that can be asked for is tried.
constexpr double slower = 1.05;

// A disk and a processor of about the same speed at the sizes of these tests, so that it matters when updates run.
constexpr const char* rates_alike = R"({"disks": [{"read_bytes_per_second": 1e7}],
    "memory_bytes_per_second": 1e9, "bf16_flops_per_second": 1e8, "f32_flops_per_second": 1e8})";

class Chosen : public SameBits, public testing::Test {
 protected:
  void SetUp() override { use_llama(256, 768); }

  void use_llama(std::int64_t width, std::int64_t inner) {
    nlohmann::json config = nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "vocab_size": 257, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
      "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})");
    config["hidden_size"] = width;
    config["intermediate_size"] = inner;
    use(config);
    const TrainOptions usual;
    options_.dtype = "bf16";
    options_.max_seq_len = 128;
    options_.per_device_train_batch_size = usual.per_device_train_batch_size;
    options_.gradient_accumulation_steps = usual.gradient_accumulation_steps;
    options_.piece_elements = usual.piece_elements;
    options_.tile_elements = usual.tile_elements;
    options_.page_size_bytes = usual.page_size_bytes;
    options_.eval_data.clear();
    options_.eval_steps = 0;
    options_.order = "auto";
    options_.recompute = "auto";
    options_.policy = "auto";
    options_.clip_mode = "auto";
    options_.deferred_layers = usual.deferred_layers;
  }

  void with_disk(double read, double write, double mixed) {
    options_.machine = scratch_
                           .file("machine.json", fmt::format(R"({{"threads": 2, "memory_bytes": "16GiB", "disks": [{{
      "read_bytes_per_second": {}, "write_bytes_per_second": {}, "mixed_bytes_per_second": {}}}]}})",
                                                             read, write, mixed))
                           .string();
  }

  static double seconds_of(const TrainOptions& options) { return run_plan(options, true).prediction->step_seconds; }

  void expect_no_policy_is_faster() {
    const double chosen = seconds_of(options_);
    for (const Policy policy : all_policies) {
      TrainOptions asked = options_;
      asked.policy = name_of(policy);
      EXPECT_LE(chosen, slower * seconds_of(asked)) << name_of(policy);
    }
  }
};

TEST_F(Chosen, WithADeviceNoPolicyAndNoSideOfUpdatesIsFaster) {
  options_.device = "virtual";
  for (const auto& [host, device, read] : {std::tuple{64 * mib, 30 * mib, 1e8}, {39 * mib, 30 * mib, 2e9}}) {
    SCOPED_TRACE(fmt::format("{} and {}, a disk of {} bytes a second", format_bytes(host), format_bytes(device), read));
    options_.memory_bytes = host;
    options_.device_memory_bytes = device;
    with_disk(read, read * 0.7, read * 0.8);
    expect_no_policy_is_faster();
    const double chosen = seconds_of(options_);
    for (const std::string side : {"cpu", "device"}) {
      TrainOptions asked = options_;
      asked.update_on = side;
      EXPECT_LE(chosen, slower * seconds_of(asked)) << "updates on " << side;
    }
  }
}

// Whatever the host could do of the updates meanwhile. What is committed now and then still has room on its way.
TEST_F(Chosen, WhereADeviceHasRoomForAllNothingMovesAndTheHostKeepsItsMemory) {
  options_.device = "virtual";
  options_.memory_bytes = options_.device_memory_bytes = gib;
  options_.update_rate_cpu = options_.update_rate_device = 1e9;
  options_.gradient_accumulation_steps = 4;
  for (const double max_grad_norm : {0.0, 1.0}) {
    options_.max_grad_norm = max_grad_norm;
    options_.save_steps = -1;
    const PlanReport report = run_plan(options_);
    EXPECT_EQ(report.link_up_bytes_per_step + report.link_down_bytes_per_step, 0);
    EXPECT_EQ(report.disk_read_bytes_per_step + report.disk_write_bytes_per_step, 0);
    EXPECT_LT(report.peak_memory_bytes, report.min_memory_bytes + mib);
    TrainOptions by_layer = options_;
    by_layer.order = "layer";
    EXPECT_LT(report.peak_device_memory_bytes, run_plan(by_layer).peak_device_memory_bytes);
    options_.save_steps = 100;
    const TrainingSetup setup(options_);
    std::int64_t committed_bytes = 0;
    for (const Bundle& bundle : setup.planned.layout.bundles) committed_bytes += bundle.committed ? bundle.bytes : 0;
    const std::int64_t host_bytes = setup.planned.plans.front().pages * setup.planned.layout.page_bytes;
    EXPECT_GT(host_bytes, committed_bytes);
    EXPECT_LT(host_bytes, setup.planned.in_memory_bytes - setup.planned.machine.fixed_bytes);
  }
}

// What the device has room for is no reason to look no further where its own updates take long, or where there is none
// for the way of clipping that is asked for.
TEST_F(Chosen, WhereADeviceHasRoomForAStepThatIsSlowNothingElseIsFaster) {
  with_disk(1e9, 1e9, 1e9);
  options_.device = "virtual";
  options_.memory_bytes = options_.device_memory_bytes = gib;
  options_.update_rate_cpu = options_.update_rate_device = 1e10;
  options_.link_up = options_.link_down = 16 * mib;
  options_.max_grad_norm = 1;
  options_.device_memory_bytes = run_plan(options_).peak_device_memory_bytes;
  EXPECT_EQ(run_plan(options_).link_up_bytes_per_step, 0);
  TrainOptions slow = options_;
  slow.link_up = slow.link_down = gib;
  slow.update_rate_device = 1e7;
  TrainOptions slow_on_host = slow;
  slow_on_host.update_on = "cpu";
  EXPECT_LE(seconds_of(slow), slower * seconds_of(slow_on_host));
  TrainOptions deferred = options_;
  deferred.clip_mode = "deferred";
  TrainOptions deferred_and_recomputed = deferred;
  deferred_and_recomputed.recompute = "block";
  constexpr double much_slower = 1.2;  // what is recomputed was chosen for a step that updates after backward
  EXPECT_LE(seconds_of(deferred), much_slower * seconds_of(deferred_and_recomputed));
}

TEST_F(Chosen, PagesOfAModelWithASmallVocabularyAreHugeWhereTheKernelIsAskedForThem) {
  use_llama(512, 1536);
  options_.memory_bytes = gib;
  EXPECT_EQ(TrainingSetup(options_).planned.layout.page_bytes, huge_page_bytes);
  options_.huge_pages = false;
  EXPECT_LT(TrainingSetup(options_).planned.layout.page_bytes, huge_page_bytes);
}

TEST_F(Chosen, WhereEachStepCommitsNoPolicyIsFaster) {
  options_.save_steps = 1;
  for (const std::int64_t host : {60 * mib, 80 * mib}) {
    SCOPED_TRACE(format_bytes(host));
    options_.memory_bytes = host;
    with_disk(4e8, 3e8, 3e8);
    expect_no_policy_is_faster();
  }
}

// In the mean of a step with the whole disk and one where disk_margin of it is missing.
TEST_F(Chosen, WithADiskThatMayBeSlowWhatIsFastestInTheMeanIsTaken) {
  constexpr double margin = 0.5;
  const auto mean_seconds = [](const TrainingSetup& setup) {
    const KnownMachine machine = recall_machine(setup.options.machine, setup.choices, setup.planned.layout.page_bytes);
    StepRates rates = step_rates(*setup.planned.programs.front(), machine.rates, machine.disk);
    const double whole = setup.simulated(setup.planned.plans.front(), rates).seconds;
    rates.scale_disk(1 - margin);
    return (whole + setup.simulated(setup.planned.plans.front(), rates).seconds) / 2;
  };
  options_.max_grad_norm = 0;
  options_.memory_bytes = 60 * mib;
  int other_choices = 0;
  for (const double read : {1e8, 2e8, 4e8, 8e8, 16e8}) {
    with_disk(read, read * 0.7, read * 0.8);
    options_.disk_margin = margin;
    const TrainingSetup with(options_);
    options_.disk_margin = 0;
    const TrainingSetup without(options_);
    EXPECT_LE(mean_seconds(with), 1.01 * mean_seconds(without)) << "a disk of " << read << " bytes a second";
    EXPECT_GE(with.work.score.slow_disk_seconds, with.work.score.seconds);
    EXPECT_EQ(without.work.score.slow_disk_seconds, 0);
    other_choices += with.work.choice == without.work.choice ? 0 : 1;
  }
  EXPECT_GT(other_choices, 0);
}

// A limit which what is chosen obeys changes nothing.
TEST_F(Chosen, WhereEachStepCommitsALimitOnWritesIsThatOfThePlan) {
  options_.save_steps = 1;
  options_.memory_bytes = 80 * mib;
  with_disk(1e8, 5e7, 6e7);
  const PlanReport unlimited = run_plan(options_, true);
  const double seconds = unlimited.prediction->step_seconds;
  const double a_day = static_cast<double>(unlimited.disk_write_bytes_per_step) * 86400 / seconds;
  options_.max_disk_writes_per_day = static_cast<std::int64_t>(1.05 * a_day);
  EXPECT_DOUBLE_EQ(seconds_of(options_), seconds);
}

// A commit that writes little may still be waited for: then not every step commits, unless a step takes as long as lies
// between two commits anyway.
TEST_F(Chosen, CommitsWithEveryStepTakeLittleTime) {
  use(Case{"llama_f32", ragged_llama(2), "f32"});
  options_.max_seq_len = 40;
  options_.order = "auto";
  options_.recompute = "auto";
  options_.save_steps = 0;
  options_.max_grad_norm = 0;
  const PlanReport extremes = run_plan(options_);
  const std::string alike = scratch_.file("alike.json", rates_alike).string();
  const std::string slower = scratch_
                                 .file("slower.json", R"({"disks": [{"read_bytes_per_second": 1e4}],
      "memory_bytes_per_second": 1e6, "bf16_flops_per_second": 1e5, "f32_flops_per_second": 1e5})")
                                 .string();
  int committing = 0;
  int waited_for = 0;
  for (int part = 0; part < 6; ++part) {
    options_.memory_bytes =
        extremes.min_memory_bytes + (extremes.in_memory_bytes - extremes.min_memory_bytes) * part / 24;
    options_.machine = alike;
    const TrainingSetup setup(options_);
    const auto tried =
        std::ranges::find(setup.work.tried, setup.work.choice, [](const WorkTried& one) { return one.choice; });
    ASSERT_NE(tried, setup.work.tried.end());
    EXPECT_LE(setup.work.score.mean_seconds(), tried->score.mean_seconds() * (1 + CommitPace::busy_share)) << part;
    if (setup.pace().every_step()) {
      ++committing;
      continue;
    }
    options_.machine = slower;
    const TrainingSetup long_steps(options_);
    EXPECT_GE(long_steps.work.score.seconds, CommitPace::least_seconds);
    waited_for += long_steps.pace().every_step() ? 1 : 0;
  }
  EXPECT_GT(committing, 0);
  EXPECT_GT(waited_for, 0);
}

// What waits depends on the way that steps which clip go, and with it what is best made again and in which order.
TEST_F(Chosen, WhereStepsMayClipOrderAndRecomputingAreThoseOfTheirWay) {
  options_.per_device_train_batch_size = 1;
  options_.gradient_accumulation_steps = 4;
  options_.save_steps = -1;
  options_.machine = scratch_
                         .file("machine.json", R"({"memory_bytes": "32GiB", "threads": 2, "bf16_flops_per_second": 2e11,
      "memory_bytes_per_second": 4e10, "disks": [{"read_bytes_per_second": 1e9}]})")
                         .string();
  const auto seconds = [](const TrainOptions& options) { return TrainingSetup(options).work.score.seconds; };
  for (const std::int64_t budget : cases(std::vector{44 * mib, 56 * mib})) {
    options_.memory_bytes = budget;
    TrainOptions asked = options_;
    asked.order = "layer";
    asked.recompute = "attention";
    EXPECT_LE(seconds(options_), 1.06 * seconds(asked)) << format_bytes(budget);  // near the best, one thing at a time
  }
}

TEST_F(Chosen, WhereStepsMayClipNoWayIsFaster) {
  const std::string machine = scratch_.file("alike.json", rates_alike).string();
  const std::vector<Case> tests{{"llama_f32", ragged_llama(2), "f32"},
                                {"gpt2_bf16", ragged_gpt2(2), "bf16"},
                                {"llama_bf16_accumulate", ragged_llama(2), "bf16", 2}};
  for (const Case& test : tests) {
    SCOPED_TRACE(test.name);
    use(test);
    options_.max_seq_len = 40;
    options_.order = "auto";
    options_.recompute = "auto";
    options_.machine = machine;
    options_.max_grad_norm = 1e9;
    options_.save_steps = -1;  // commits may come for free with one way and not with another
    const PlanReport extremes = run_plan(options_);
    for (const int quarters : {1, 2, 3}) {
      options_.memory_bytes =
          extremes.min_memory_bytes + (extremes.in_memory_bytes - extremes.min_memory_bytes) * quarters / 4;
      const auto seconds = [&](const std::string& mode) {
        options_.clip_mode = mode;
        return seconds_of(options_);
      };
      const double chosen = seconds("auto");  // what waits for next to nothing is not looked into
      EXPECT_LE(chosen, seconds("after") * 1.01) << quarters;
      EXPECT_LE(chosen, seconds("deferred") * 1.01) << quarters;
    }
  }
}

}  // namespace
}  // namespace spillway
