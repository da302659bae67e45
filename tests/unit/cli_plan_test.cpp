// `spillway plan` from end to end on tiny models: what it prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <sstream>

#include "base/bytes.h"
#include "verbs.h"

namespace spillway {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(Verbs, PlanAnswersForAMachineGivenByAFewNumbers) {
  const auto compute_seconds = [&](const std::string& rate) {
    folder_.file("machine.json",
                 R"({"op_seconds": 0, "memory_bytes_per_second": 1e18, "f32_flops_per_second": )" + rate + "}");
    const Outcome outcome =
        run({"plan", "--model", path("model"), "--data", path("data.txt"), "--dtype", "f32", "--max-seq-len", "16",
             "--memory", "2GiB", "--machine", path("machine.json"), "--predict", "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at("compute_seconds").get<double>();
  };
  const double slow = compute_seconds("1e9");
  EXPECT_GT(slow, 0);
  EXPECT_NEAR(compute_seconds("4e9"), slow / 4, 1e-9 * slow);
}

TEST_F(Verbs, PlanSaysWhatABusyDiskTakesFromComputing) {
  const std::vector<std::string> asked{
      "plan",     "--model",  path("model"), "--data", path("data.txt"), "--dtype", "f32",       "--max-seq-len", "16",
      "--policy", "farthest", "--order",     "layer",  "--recompute",    "none",    "--predict", "--machine"};
  const auto plan = [&](const std::string& machine, const std::vector<std::string>& more) {
    folder_.file("machine.json", machine);
    std::vector<std::string> arguments = asked;
    arguments.push_back(path("machine.json"));
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const auto smallest = nlohmann::json::parse(plan("{}", {"--json"})).at("min_memory_bytes").get<std::int64_t>();
  const std::vector<std::string> tight{"--memory", std::to_string(smallest)};
  const auto machine = [](int slowdown) {
    return fmt::format(R"({{"compute_slowdown": {}, "attach_seconds": 0, "wake_seconds": 0,
                           "disks": [{{"read_bytes_per_second": 1e9}}]}})",
                       slowdown);
  };
  EXPECT_THAT(plan(machine(2), tight), testing::ContainsRegex("beside the disk +0\\.[0-9]+ s more of computing"));
  EXPECT_THAT(plan(machine(1), tight), testing::Not(HasSubstr("beside the disk")));
}

TEST_F(Verbs, PlanSaysWhereTheTimeGoesAndWhatWouldHelp) {
  ASSERT_EQ(run(init({"--hidden-size", "256", "--num-hidden-layers", "4", path("larger")})).code, 0);
  folder_.file("machine.json", R"({"disks": [{"read_bytes_per_second": 1e6}]})");
  const std::vector<std::string> asked{
      "plan",        "--model",   path("larger"),       "--data",     path("data.txt"),
      "--dtype",     "f32",       "--max-seq-len",      "16",         "--gradient-accumulation-steps",
      "4",           "--machine", path("machine.json"), "--disk-tbw", "100",
      "--max-steps", "7",         "--recompute",        "none",       "--order",
      "layer"};
  const auto plan = [&](const std::string& memory) {
    std::vector<std::string> arguments = asked;
    arguments.insert(arguments.end(), {"--policy", "farthest", "--memory", memory, "--json"});
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const auto wide = plan("2GiB");
  const auto smallest = wide.at("min_memory_bytes").get<std::int64_t>();
  const auto tight = plan(std::to_string(smallest));
  const auto middling = plan(std::to_string((smallest + wide.at("in_memory_bytes").get<std::int64_t>()) / 2));
  for (const auto& json : {wide, tight, middling}) {
    double seconds = 0;
    for (const auto& phase : json.at("phases")) {
      seconds += phase.at("compute_seconds").get<double>() + phase.at("wait_seconds").get<double>();
    }
    const auto step = json.at("step_seconds").get<double>();
    EXPECT_NEAR(seconds, step, 1e-6 * step);
    EXPECT_GE(step, json.at("lower_bound_seconds").get<double>() * (1 - 1e-9));
    const auto stalled = json.at("stall_seconds").get<double>();
    const auto slowed = json.at("slowed_seconds").get<double>();
    EXPECT_NEAR(json.at("compute_seconds").get<double>() + slowed + stalled, step, 1e-6 * step);
    EXPECT_NEAR(json.at("share_of_bound").get<double>() * step, json.at("lower_bound_seconds").get<double>(), 1e-9);
    EXPECT_NEAR(json.at("run_seconds").get<double>(), 7 * step, 1e-6 * step);
    std::int64_t peak = 0;
    std::int64_t waste = 0;
    for (const auto& row : json.at("peak_by_tag")) {
      peak += row.at("bytes").get<std::int64_t>();
      waste += row.at("waste_bytes").get<std::int64_t>();
      EXPECT_LE(row.at("waste_bytes"), row.at("bytes")) << row;
    }
    EXPECT_GT(waste, 0) << "vectors of norms fill no page";
    EXPECT_LT(waste, peak / 2);
    EXPECT_EQ(peak, json.at("peak_memory_bytes").get<std::int64_t>());
  }
  EXPECT_EQ(wide.at("levers").size(), 1U);  // neither memory nor a disk helps where nothing moves
  EXPECT_EQ(wide.at("disk_write_bytes_per_step").get<std::int64_t>(), 0);
  for (const auto& json : {wide, tight, middling}) {
    double most = 0;
    std::string names;
    for (const auto& lever : json.at("levers")) {
      if (lever.at("what") != "twice the batch" && lever.at("speedup") > most) {
        most = lever.at("speedup");
        names = lever.at("what");
      }
    }
    EXPECT_THAT(names, testing::EndsWith(json.at("bottleneck").get<std::string>()));
  }
  EXPECT_EQ(wide.at("bottleneck"), "compute");
  std::int64_t written = 0;
  for (const auto& row : tight.at("links")) written += row.at("write_bytes").get<std::int64_t>();
  EXPECT_EQ(written, tight.at("disk_write_bytes_per_step").get<std::int64_t>());
  EXPECT_GT(tight.at("disk_life_years").get<double>(), 0);
  std::map<std::string, double> speedup;
  for (const auto& lever : middling.at("levers")) speedup[lever.at("what")] = lever.at("speedup");
  EXPECT_NEAR(speedup.at("a second disk"), 2, 0.2);
  EXPECT_NEAR(speedup.at("twice the compute"), 1, 0.05) << "the disk binds";
  EXPECT_GT(speedup.at("twice the memory"), 1.05);
  EXPECT_GT(speedup.at("twice the batch"), 0);
}

// Of a model with four layers, on the machine of machine.json.
class PlansOfFourLayers : public Verbs {
 protected:
  void SetUp() override {
    Verbs::SetUp();
    ASSERT_EQ(run(init({"--hidden-size", "256", "--num-hidden-layers", "4", path("larger")})).code, 0);
  }
  Outcome run_of_larger(const std::string& verb, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{verb,
                                       "--model",
                                       path("larger"),
                                       "--data",
                                       path("data.txt"),
                                       "--dtype",
                                       "f32",
                                       "--machine",
                                       path("machine.json"),
                                       "--max-seq-len",
                                       "16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  std::string plan_of_larger(const std::vector<std::string>& more) const { return run_of_larger("plan", more).out; }
  // With nothing to choose, which under a sanitizer takes a minute.
  std::string plan_of_one_choice(std::vector<std::string> more) const {
    more.insert(more.end(),
                {"--recompute", "none", "--clip-mode", "after", "--order", "layer", "--policy", "farthest"});
    return plan_of_larger(more);
  }
};

TEST_F(PlansOfFourLayers, PlanSaysWhichWayStepsClip) {
  folder_.file("machine.json", R"({"disks": [{"read_bytes_per_second": 1e8}]})");
  const auto plan = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--max-steps", "7", "--recompute", "none", "--order", "layer", "--policy", "farthest"});
    return plan_of_larger(more);
  };
  const auto smallest = nlohmann::json::parse(plan({"--json"})).at("min_memory_bytes").get<std::int64_t>();
  const std::string memory = std::to_string(smallest + (8 << 20));  // in which each way finds room
  for (const std::string mode : {"after", "deferred", "speculative"}) {
    const std::vector<std::string> forced{"--memory", memory, "--max-grad-norm", "1", "--clip-mode", mode};
    std::vector<std::string> as_json = forced;
    as_json.emplace_back("--json");
    EXPECT_EQ(nlohmann::json::parse(plan(as_json)).at("clip"), mode);
    const std::string text = plan(forced);
    EXPECT_THAT(text, testing::ContainsRegex("clipping +" + mode + "\n"));
    EXPECT_EQ(text.find("if none clips") != std::string::npos, mode == "speculative") << text;
  }
  const std::vector<std::string> unlimited{"--memory", memory, "--max-grad-norm", "0"};
  EXPECT_THAT(plan(unlimited), testing::ContainsRegex("clipping +none\n"));
}

// As in a run, whose bytes are those of the plans.
TEST_F(PlansOfFourLayers, PlanSaysWhatStepsTakeInTheMeanWhereThoseThatCommitDoNotDefer) {
  folder_.file("machine.json", R"({"disks": [{"read_bytes_per_second": 1e8}]})");
  const auto smallest =
      nlohmann::json::parse(plan_of_one_choice({"--json"})).at("min_memory_bytes").get<std::int64_t>();
  const std::vector<std::string> deferred{"--memory",     std::to_string(smallest + (8 << 20)),
                                          "--max-steps",  "8",
                                          "--save-steps", "2",
                                          "--clip-mode",  "deferred",
                                          "--recompute",  "none",
                                          "--order",      "layer",
                                          "--policy",     "farthest",
                                          "--output-dir", path("out")};
  const std::string told = run_of_larger("plan", deferred).err;
  run_of_larger("train", deferred);
  std::istringstream lines(folder_.text_of("out/metrics.jsonl"));
  std::int64_t read = 0;
  std::int64_t written = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (!record.contains("step_seconds") || record.at("step") < 3 || record.at("step") > 6) continue;
    read += record.at("disk_read_bytes").get<std::int64_t>();
    written += record.at("disk_write_bytes").get<std::int64_t>();
  }
  EXPECT_GT(read, 0);
  EXPECT_THAT(told,
              AllOf(HasSubstr("one of 2 steps commits and completes its update at once: in the mean a step takes "),
                    HasSubstr(format_bytes(read / 4) + " read, " + format_bytes(written / 4) + " written")));
}

// What is made again is no part of what a step takes at least.
TEST_F(PlansOfFourLayers, PlanCountsWhatIsMadeAgainApartFromTheBound) {
  folder_.file("machine.json", R"({"disks": [{"read_bytes_per_second": 1e12}]})");
  const auto plan = [&](const std::string& recompute) {
    return nlohmann::json::parse(plan_of_larger(
        {"--json", "--memory", "2GiB", "--order", "layer", "--max-grad-norm", "0", "--recompute", recompute}));
  };
  const auto none = plan("none");
  const auto block = plan("block");
  EXPECT_EQ(none.at("recompute_seconds"), 0);
  const auto again = block.at("recompute_seconds").get<double>();
  EXPECT_GT(again, 0);
  const auto once = none.at("compute_seconds").get<double>();
  EXPECT_NEAR(block.at("compute_seconds").get<double>(), once + again, 1e-9 * once);
  EXPECT_NEAR(block.at("lower_bound_seconds").get<double>(), once, 1e-9 * once);
  EXPECT_LT(block.at("share_of_bound").get<double>(), none.at("share_of_bound").get<double>());
  EXPECT_THAT(plan_of_larger({"--memory", "2GiB", "--order", "layer", "--recompute", "block"}),
              testing::ContainsRegex("made again +[0-9.]+ s more of computing\n"));
}

TEST_F(PlansOfFourLayers, PlanSaysHowLongADiskLastsInWordsThatFit) {
  folder_.file("machine.json", R"({"disks": [{"read_bytes_per_second": 1e8}]})");
  const auto smallest = nlohmann::json::parse(plan_of_one_choice({"--json", "--memory", "2GiB"}))
                            .at("min_memory_bytes")
                            .get<std::int64_t>();
  const std::vector<std::string> tight{"--memory", std::to_string(smallest), "--disk-tbw"};
  const auto with = [&](const std::string& tbw) {
    std::vector<std::string> more = tight;
    more.push_back(tbw);
    return plan_of_one_choice(more);
  };
  EXPECT_THAT(with("0.5"), testing::ContainsRegex("; [0-9.]+ (s|min|h|days) until 0.5 TB are written\n"));
  EXPECT_THAT(with("50000"), testing::ContainsRegex("; [0-9.]+ years until 50000 TB are written\n"));
  std::vector<std::string> wrong{"plan", "--model", path("larger"), "--data", path("data.txt"), "--disk-tbw"};
  for (const char* number : {"-1", "nan", "inf", "1e300"}) {
    wrong.back() = std::string("--disk-tbw=") + number;
    const Outcome outcome = run(wrong);
    EXPECT_EQ(outcome.code, 2) << number;
    EXPECT_THAT(outcome.err, HasSubstr("--disk-tbw must be a number from 0 to 1000000")) << number;
  }
}

TEST_F(PlansOfFourLayers, PlanSaysWhatGoesToEachDisk) {
  folder_.file("machine.json", nlohmann::json{{"disks",
                                               {{{"directory", path("slow")}, {"read_bytes_per_second", 1e8}},
                                                {{"directory", path("fast")}, {"read_bytes_per_second", 3e8}}}}}
                                   .dump());
  for (const char* name : {"slow", "fast"}) std::filesystem::create_directory(path(name));
  const std::string memory = std::to_string(nlohmann::json::parse(plan_of_one_choice({"--json", "--memory", "2GiB"}))
                                                .at("min_memory_bytes")
                                                .get<std::int64_t>());
  const std::vector<std::string> two{"--memory", memory, "--spill-dir", path("slow"), path("fast")};
  std::vector<std::string> as_json = two;
  as_json.emplace_back("--json");
  const auto json = nlohmann::json::parse(plan_of_one_choice(as_json));
  std::map<std::string, double> read;
  for (const auto& row : json.at("disks")) read[row.at("directory")] = row.at("read_bytes").get<double>();
  ASSERT_EQ(read.size(), 2U);
  EXPECT_NEAR(read.at(path("fast")), 3 * read.at(path("slow")), 3);
  EXPECT_NEAR(read.at(path("slow")) + read.at(path("fast")), json.at("disk_read_bytes_per_step").get<double>(), 2);
  EXPECT_THAT(plan_of_one_choice(two), AllOf(HasSubstr(" written in " + path("fast")), HasSubstr("twice the disks: ")));
}

// So slow on the processor that a step ends with a wait for them.
TEST_F(Verbs, PlanCountsUpdatesBesideADevice) {
  folder_.file("machine.json", "{}");
  folder_.file("run.yaml", "model: " + path("model") + "\ndata: [" + path("data.txt") + "]\nmachine: " +
                               path("machine.json") + "\ndtype: f32\nmax_seq_len: 16\nmemory: 2GiB\ndevice: virtual\n" +
                               "device_memory: 512MiB\nupdate_on: cpu\nupdate_rate_cpu: 100000\nclip_mode: after\n");
  const auto plan = [&](const std::string& more) {
    const Outcome outcome = run({"plan", path("run.yaml"), more});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const auto json = nlohmann::json::parse(plan("--json"));
  const auto step = json.at("step_seconds").get<double>();
  EXPECT_EQ(json.at("bottleneck"), "update");
  double seconds = 0;
  double waits = 0;
  for (const auto& phase : json.at("phases")) {
    seconds += phase.at("compute_seconds").get<double>() + phase.at("wait_seconds").get<double>();
    waits += phase.at("wait_seconds").get<double>();
  }
  EXPECT_NEAR(seconds, step, 1e-6 * step);
  EXPECT_NEAR(waits, json.at("stall_seconds").get<double>(), 1e-6 * step);
  EXPECT_EQ(json.at("phases").back().at("phase"), "update");
  EXPECT_GT(json.at("phases").back().at("wait_seconds").get<double>(), step / 2);
  EXPECT_THAT(plan("--predict"), HasSubstr(fmt::format("{:.3f} s of updates on the processor; the plan reaches",
                                                       json.at("update_seconds").get<double>())));
}

// Those of the step before, while a deferred one begins.
TEST_F(Verbs, PlanCountsKeptGradientsAmongWhatIsAlive) {
  const Outcome outcome =
      run({"plan", "--model", path("model"), "--data", path("data.txt"), "--dtype", "f32", "--max-seq-len", "16",
           "--memory", "2GiB", "--no-predict", "--clip-mode", "deferred", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  std::int64_t at_the_peak = 0;
  for (const auto& row : json.at("peak_by_tag")) {
    if (row.at("what") != "gradients" && row.at("what") != "activations") continue;
    at_the_peak += row.at("bytes").get<std::int64_t>() - row.at("waste_bytes").get<std::int64_t>();
  }
  EXPECT_GE(json.at("placement").back().at("bytes").get<std::int64_t>(), at_the_peak);
}

// As a probe without an output folder measures it.
TEST_F(PlansOfFourLayers, PlanWithoutAnOutputFolderIsForTheDiskOfTheCurrentOne) {
  const auto disk = [](const std::filesystem::path& directory, double rate) {
    return nlohmann::json{{"directory", directory.string()}, {"read_bytes_per_second", rate}};
  };
  const std::filesystem::path current = std::filesystem::current_path();
  const std::filesystem::path temporary = std::filesystem::temp_directory_path();
  if (current == temporary) GTEST_SKIP() << "both are " << current;
  folder_.file("machine.json", nlohmann::json{{"disks", {disk(temporary, 1e6), disk(current, 5e8)}}}.dump());
  const auto plan = [&](std::vector<std::string> more) {
    more.emplace_back("--json");
    return nlohmann::json::parse(plan_of_one_choice(more));
  };
  const std::string memory = std::to_string(plan({"--memory", "2GiB"}).at("min_memory_bytes").get<std::int64_t>());
  const auto disk_seconds = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--memory", memory});
    return plan(more).at("disk_seconds").get<double>();
  };
  const double here = disk_seconds({"--spill-dir", current.string()});
  EXPECT_GT(disk_seconds({"--spill-dir", temporary.string()}), 2 * here);
  EXPECT_NEAR(disk_seconds({}), here, 1e-9 * here);
}

TEST_F(Verbs, PlanCountsTheStepsThatEpochsMake) {
  const std::vector<std::string> epochs{
      "--max-steps", "-1", "--num-train-epochs", "1.5", "--per-device-train-batch-size", "4"};
  ASSERT_EQ(run(train(epochs)).code, 0);
  const std::string metrics = folder_.text_of("out/metrics.jsonl");
  std::vector<std::string> asked{"plan", "--model", path("model"), "--data",       path("data.txt"), "--max-seq-len",
                                 "16",   "--dtype", "f32",         "--no-predict", "--json"};
  asked.insert(asked.end(), epochs.begin(), epochs.end());
  const auto json = nlohmann::json::parse(run(asked).out);
  const auto steps = json.at("total_steps").get<std::int64_t>();
  EXPECT_GT(steps, 5);
  EXPECT_FALSE(json.at("total_steps_estimated").get<bool>());
  EXPECT_THAT(metrics, HasSubstr(fmt::format("\"step\": {},", steps)));
  EXPECT_THAT(metrics, Not(HasSubstr(fmt::format("\"step\": {},", steps + 1))));
  asked[4] = path("gone.txt");
  const Outcome without = run(asked);
  EXPECT_EQ(without.code, 0);
  EXPECT_THAT(without.err, HasSubstr("gone.txt"));
  EXPECT_EQ(nlohmann::json::parse(without.out).at("total_steps"), 0);
}

TEST_F(Verbs, PlanSaysWhatDoesNotHoldForTheRunItIsAsked) {
  const auto notes = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"plan",           "--model",       path("model"), "--data",
                                       path("data.txt"), "--dtype",       "f32",         "--memory",
                                       "2GiB",           "--max-seq-len", "16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out + outcome.err;
  };
  EXPECT_THAT(notes({"--no-predict", "--spill-dir", path("nowhere")}),
              HasSubstr(path("nowhere") + "' is no directory"));
  EXPECT_THAT(notes({"--no-predict", "--clip-mode", "deferred", "--max-grad-norm", "0"}),
              HasSubstr("nothing to decide"));
  folder_.file("machine.json", R"({"threads": 16})");
  const std::vector<std::string> elsewhere{"--machine", path("machine.json"), "--threads", "4"};
  EXPECT_THAT(notes(elsewhere), HasSubstr("rates of 16 threads"));
  EXPECT_THAT(notes({"--machine", path("machine.json")}), testing::Not(HasSubstr("rates of 16 threads")));
}

// In memory alone, so that what is written is what commits write.
TEST_F(Verbs, PlanCountsWhatCommitsWrite) {
  folder_.file("machine.json", "{}");
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{
        "plan", "--model",    path("model"), "--data",    path("data.txt"),     "--dtype",
        "f32",  "--memory",   "2GiB",        "--machine", path("machine.json"), "--max-seq-len",
        "16",   "--disk-tbw", "100"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const auto number = [&](const std::string& save_steps, const std::string& key) {
    return nlohmann::json::parse(plan({"--save-steps=" + save_steps, "--json"})).value(key, 0.0);
  };
  EXPECT_EQ(number("-1", "disk_written_bytes_per_day"), 0);
  EXPECT_EQ(number("-1", "disk_life_years"), 0);
  const double some_seconds = 100000 * number("100000", "step_seconds");
  const double bytes = number("100000", "disk_committed_bytes_per_day") / 86400 * some_seconds;
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(number("100000", "disk_written_bytes_per_day"), number("100000", "disk_committed_bytes_per_day"));
  EXPECT_GT(number("100000", "disk_life_years"), 0);
  EXPECT_NEAR(number("0", "disk_committed_bytes_per_day"), bytes * 288, 1e-6 * bytes * 288);  // five minutes apart
  EXPECT_EQ(number("1", "disk_committed_bytes_per_day"), 0);                                  // steps write them
  EXPECT_NEAR(number("1", "disk_write_bytes_per_step"), bytes, 0.01 * bytes);
  EXPECT_THAT(plan({}), HasSubstr("of it by commits"));
}

TEST_F(Verbs, PlanWritesATraceOnlyWhereAFlagAsksForIt) {
  folder_.file("machine.json", "{}");
  folder_.file("measured.json", "of the run");
  folder_.file("run.yaml", "model: " + path("model") + "\ndata: [" + path("data.txt") + "]\nmachine: " +
                               path("machine.json") + "\nmax_seq_len: 16\ntrace: " + path("measured.json") + "\n");
  Outcome outcome = run({"plan", path("run.yaml")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(folder_.text_of("measured.json"), "of the run");
  outcome = run({"plan", path("run.yaml"), "--trace", path("predicted.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(folder_.text_of("measured.json"), "of the run");
  EXPECT_THAT(folder_.text_of("predicted.json"), HasSubstr("predicted"));
}

TEST_F(Verbs, ATraceNeverReplacesWhatTheRunReads) {
  const std::string text = folder_.text_of("data.txt");
  for (const char* const verb : {"train", "plan"}) {
    std::filesystem::create_symlink(path("model/model.safetensors"), path(std::string("link of ") + verb));
    for (const std::string& file :
         {path("data.txt"), path("model/config.json"), path(std::string("link of ") + verb)}) {
      std::vector<std::string> arguments = train({"--trace", file});
      arguments.front() = verb;
      const Outcome outcome = run(arguments);
      EXPECT_EQ(outcome.code, 2) << verb << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr("name another")) << verb;
    }
  }
  EXPECT_EQ(folder_.text_of("data.txt"), text);
}

}  // namespace
}  // namespace spillway
