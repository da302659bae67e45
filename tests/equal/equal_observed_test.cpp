// What a run reports of itself agrees with itself and with the kernel, and watching it changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <set>

#include "base/error.h"
#include "device/memory_info.h"
#include "formats/machine_file.h"
#include "golden/model_folder.h"
#include "measured_steps.h"
#include "one_choice.h"
#include "recording_observer.h"
#include "report/report_data.h"
#include "scoped_variable.h"
#include "scratch_folder.h"
#include "session/session.h"
#include "session/setup.h"
#include "sim/simulate.h"
#include "telemetry/flight_record.h"
#include "thread_slices.h"
#include "trace_checker.h"

namespace spillway {
namespace {

class Observed : public testing::Test {
 protected:
  void SetUp() override {
    const auto config = nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "vocab_size": 500, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": false})");
    golden::write_model(scratch_ / "model", config, "");
    golden::write_tokens(scratch_ / "tokens.npy", 4000, 500);
    options_.model = (scratch_ / "model").string();
    options_.data = {(scratch_ / "tokens.npy").string()};
    options_.output_dir = (scratch_ / "out").string();
    options_.max_steps = 4;
    options_.per_device_train_batch_size = 2;
    options_.gradient_accumulation_steps = 2;
    options_.max_seq_len = 64;
    options_.dtype = "f32";
    options_.threads = 2;
    options_.page_size_bytes = 16384;
    options_.trace = (scratch_ / "trace.json").string();
    options_.trace_steps = 5;
    leave_one_choice_under_sanitizer(options_);
    options_.memory_bytes = std::int64_t{1} << 40;
    const std::int64_t smallest = run_plan(options_).min_memory_bytes;
    options_.memory_bytes = smallest;
  }

  std::vector<StepRecord> run() {
    RecordingObserver observer;
    run_train(options_, observer);
    return observer.steps;
  }

  std::vector<nlohmann::json> metrics() const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(std::filesystem::path(options_.output_dir) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  ScratchFolder scratch_;
  TrainOptions options_;
};

TEST_F(Observed, TheThreadThatWaitsForTheDiskRunsPromptly) {
  if (slice_ns_of(0) == 0) GTEST_SKIP() << "this kernel has no slices to ask for; Linux 6.12 has";
  class CountsAtSteps : public RecordingObserver {
   public:
    void step(const StepRecord&) override { threads = prompt_threads(); }
    std::int64_t threads = 0;
  } observer;
  EXPECT_EQ(prompt_threads(), 0);
  run_train(options_, observer);
  EXPECT_GE(observer.threads, 1);
  EXPECT_EQ(prompt_threads(), 0) << "nor does the one that computes";
}

double sum_of(const nlohmann::json& object) {
  double sum = 0;
  for (const auto& [key, value] : object.items()) sum += value.get<double>();
  return sum;
}

// An op of a replay can end sooner, for a thread wakes up late. It cannot end later: then the simulator would wait for
// something that the executor did not wait for.
TEST_F(Observed, NoOpOfAReplayEndsLaterThanInTheRunThatWasMeasured) {
  golden::write_model(scratch_ / "larger", golden::llama_of(2, 256, 2000), "");
  options_.model = (scratch_ / "larger").string();
  options_.per_device_train_batch_size = options_.gradient_accumulation_steps = 1;
  options_.max_seq_len = 8;  // so that the disk binds
  options_.trace.clear();
  options_.save_steps = -1;
  options_.spill_dir = {scratch_.path().string()};
  options_.max_grad_norm = 0;
  options_.deferred_layers = 0;
  options_.memory_bytes = std::int64_t{1} << 40;
  options_.memory_bytes = run_plan(options_).min_memory_bytes;
  TrainingSetup setup(options_);
  const Plan& plan = setup.planned.plans.front();
  ASSERT_GT(plan.traffic.read_bytes, 0);
  MachineRates machine;
  machine.wake_seconds = 0;
  const bench::MeasuredStep run = bench::measure_steps(setup, machine, 1).front();
  const Timeline replay = simulate(plan, setup.planned.layout, run.rates);
  constexpr double unseen_seconds = 1e-3;  // of a wait that is over before it is told
  double ops = 0;
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(LaneId::compute)]) {
    ops += run.rates.op_seconds[index_of(plan.instrs[index_of(id)].op)];
    EXPECT_LE(replay.ends[index_of(id)], run.ends[index_of(id)] + unseen_seconds) << "instruction " << index_of(id);
    EXPECT_GE(replay.ends[index_of(id)], ops - unseen_seconds);
  }
}

TEST_F(Observed, TheSumsOfEachStepAgree) {
  run();
  const auto lines = metrics();
  ASSERT_EQ(lines.size(), 4U);
  const FlightRecord record = read_flight(options_.output_dir);
  double moved = 0;
  for (const auto& line : lines) {
    EXPECT_NEAR(sum_of(line["phase_seconds"]), line["step_seconds"].get<double>(), 1e-6);
    EXPECT_NEAR(sum_of(line["wait_seconds"]), line["stall_seconds"].get<double>(), 1e-9);
    EXPECT_EQ(sum_of(line["read_bytes"]), line["disk_read_bytes"].get<double>());
    EXPECT_EQ(sum_of(line["write_bytes"]), line["disk_write_bytes"].get<double>());
    EXPECT_EQ(sum_of(line["memory_bytes"]), static_cast<double>(record.catalog.arena_bytes));
    for (const char* phase : {"forward", "backward", "update"}) EXPECT_GT(line["phase_seconds"][phase], 0) << phase;
    moved += line["disk_read_bytes"].get<double>();
  }
  EXPECT_GT(moved, 0) << "at the smallest budget something moves";
}

// A plan that rests on guesses, where there is too little memory to measure, says so; one for a machine that is given
// does not.
TEST_F(Observed, ARunSaysWhereItAssumesADisk) {
  options_.policy = "auto";  // rates are asked for where something is chosen by them
  const ScopedVariable cache("XDG_CACHE_HOME", scratch_ / "cache");
  const auto assumes = testing::Contains(testing::HasSubstr("is assumed"));
  RecordingObserver guessing;
  run_train(options_, guessing);
  EXPECT_THAT(guessing.notes, assumes);
  MachineRates given = assumed_rates();
  given.disks.front().source = RateSource::declared;
  options_.machine = scratch_.file("machine.json", write_machine(given)).string();
  options_.output_dir = (scratch_ / "known").string();
  RecordingObserver knowing;
  run_train(options_, knowing);
  EXPECT_THAT(knowing.notes, testing::Not(assumes));
}

TEST_F(Observed, TheFirstRunOnAMachineMeasuresTheDiskBeforeItChooses) {
  options_.policy = "auto";  // rates are asked for where something is chosen by them
  const ScopedVariable cache("XDG_CACHE_HOME", scratch_ / "cache");
  options_.per_device_train_batch_size = 64;
  options_.max_steps = 1;
  options_.memory_bytes = run_plan(options_).min_memory_bytes + (4 << 20);  // 16 MiB of pages, to measure in
  const auto measures = testing::Contains(testing::HasSubstr("the disk was measured"));
  const auto assumes = testing::Contains(testing::HasSubstr("is assumed"));
  RecordingObserver first;
  run_train(options_, first);
  EXPECT_THAT(first.notes, measures);
  EXPECT_THAT(first.notes, testing::Not(assumes));
  options_.output_dir = (scratch_ / "second").string();
  RecordingObserver second;
  run_train(options_, second);
  EXPECT_THAT(second.notes, testing::Not(testing::AnyOf(measures, assumes)));
}

TEST_F(Observed, TheTimeOfAStepIsInThePhasesThatWerePredicted) {
  options_.machine = scratch_.file("machine.json", R"({"disks": [{"read_bytes_per_second": 1e9}]})").string();
  options_.clip_mode = "after";
  options_.trace = "";
  for (const std::string recompute : {"none", "block"}) {
    options_.recompute = recompute;
    options_.output_dir = (scratch_ / recompute).string();
    options_.memory_bytes = std::int64_t{1} << 40;
    const PlanReport roomy = run_plan(options_);
    options_.memory_bytes = (roomy.min_memory_bytes + roomy.in_memory_bytes) / 2;
    const PlanReport planned = run_plan(options_, true);
    std::set<std::string> predicted;
    for (const PhaseRow& row : planned.prediction.value().phases) predicted.insert(row.phase);
    EXPECT_EQ(predicted.contains("recompute"), recompute == "block");
    const StepTotals totals = run().back().totals.value();
    for (const StepPhase phase :
         {StepPhase::forward, StepPhase::head, StepPhase::recompute, StepPhase::backward, StepPhase::update}) {
      const std::string name(name_of(phase));
      EXPECT_EQ(totals.phase_seconds[static_cast<std::size_t>(phase)] > 0, predicted.contains(name)) << name;
    }
  }
}

// On the smallest device, above the smallest host.
class ObservedOnADevice : public Observed {
 protected:
  void SetUp() override {
    Observed::SetUp();
    options_.device = "virtual";
    options_.device_memory_bytes = std::int64_t{1} << 30;
    options_.memory_bytes = std::int64_t{1} << 40;
    options_.link_up = options_.link_down = std::int64_t{1} << 30;
    const PlanReport roomy = run_plan(options_);
    options_.device_memory_bytes = roomy.min_device_memory_bytes;
    options_.memory_bytes = roomy.min_memory_bytes;
  }
};

TEST_F(ObservedOnADevice, TheSumsOfEachStepAgree) {
  run();
  const Catalog catalog = read_flight(options_.output_dir).catalog;
  EXPECT_EQ(catalog.device_bytes, options_.device_memory_bytes / 16384 * 16384);
  double copied = 0;
  for (const auto& line : metrics()) {
    EXPECT_NEAR(sum_of(line["wait_seconds"]), line["stall_seconds"].get<double>(), 1e-9);
    EXPECT_EQ(line["wait_seconds"].size(), wait_cause_count);
    EXPECT_EQ(sum_of(line["memory_bytes"]), static_cast<double>(catalog.arena_bytes));
    EXPECT_EQ(sum_of(line["device_memory_bytes"]), static_cast<double>(catalog.device_bytes));
    EXPECT_GT(line["device_memory_bytes"]["activations"], 0);
    EXPECT_GT(line["link_up_bytes"], 0);
    EXPECT_GT(line["disk_read_bytes"], 0) << "nor does the host hold it all";
    copied += line["link_up_bytes"].get<double>() + line["link_down_bytes"].get<double>();
  }
  TraceChecker trace(scratch_.text_of("trace.json"));
  EXPECT_THAT(trace.faults, testing::IsEmpty());
  double traced = 0;
  for (const char* track : {"copy up", "copy down"}) {
    for (const TraceChecker::Slice& slice : trace.tracks[track])
      traced += slice.args["instr"] < 0 ? 0 : slice.args["bytes"].get<double>();
  }
  EXPECT_EQ(traced, copied);
  for (const auto& sample : trace.counters["memory, bytes"])
    EXPECT_EQ(sum_of(sample), static_cast<double>(catalog.arena_bytes));
  for (const auto& sample : trace.counters["device memory, bytes"])
    EXPECT_EQ(sum_of(sample), static_cast<double>(catalog.device_bytes));
  EXPECT_FALSE(trace.counters["device memory, bytes"].empty());
}

// Which is another memory's, though the process has it. The kernel's figure is some pages of each processor off.
TEST_F(ObservedOnADevice, ThePeakIsWithoutTheDevice) {
  options_.per_device_train_batch_size = 64;
  options_.device_memory_bytes = options_.memory_bytes = std::int64_t{1} << 30;
  options_.max_steps = 1;
  RecordingObserver observer;
  run_train(options_, observer);
  EXPECT_GT(observer.summary.device_bytes, std::int64_t{16} << 20);
  EXPECT_LE(observer.end.peak_rss_bytes + observer.summary.device_bytes / 2, peak_rss_bytes());
}

// Where clips are deferred or made again a step is more than one run of a plan.
TEST_F(ObservedOnADevice, AStepsBytesAreThoseOfAllItsPlans) {
  options_.clip_mode = "deferred";
  options_.max_grad_norm = 0.1;
  options_.save_steps = 1;
  options_.flush_delay_ms = 100;               // commits wait for it, and with them updates, for the steps after
  options_.export_steps = options_.max_steps;  // but the last step completes its own: what is left then is no step's
  options_.memory_bytes = 0;
  const std::vector<StepRecord> steps = run();
  std::int64_t copied = 0;
  for (const StepRecord& step : steps) copied += step.link.value().up_bytes + step.link.value().down_bytes;
  TraceChecker trace(scratch_.text_of("trace.json"));
  double traced = 0;
  for (const char* track : {"copy up", "copy down"}) {
    for (const TraceChecker::Slice& slice : trace.tracks[track])
      traced += slice.args["instr"] < 0 ? 0 : slice.args["bytes"].get<double>();
  }
  EXPECT_EQ(traced, static_cast<double>(copied));
}

TEST_F(ObservedOnADevice, AReportOfTheRunAddsUp) {
  run();
  const ReportedRun report = report_of(read_run(options_.output_dir));
  ASSERT_TRUE(report.timeline.has_value());
  const StepTimeline& t = *report.timeline;
  std::int64_t on_device = 0;
  for (std::size_t i = 0; i < t.device.size(); ++i) {
    on_device += t.device[i].bytes;
    if (i + 1 < t.device.size() && t.device[i + 1].time_ns == t.device[i].time_ns) continue;
    EXPECT_GE(on_device, 0);
    EXPECT_LE(on_device, t.device_bytes);
  }
  EXPECT_GT(t.device_bytes, 0);
  EXPECT_TRUE(std::any_of(t.moves.begin(), t.moves.end(), [](const TimelineMove& m) { return is_of_link(m.lane); }));
  EXPECT_NE(json_of(std::span(&report, 1), "test").find("\"link_busy_seconds\""), std::string::npos);
}

TEST_F(Observed, AReportOfTheRunAddsUp) {
  const std::vector<StepRecord> steps = run();
  const ReportedRun report = report_of(read_run(options_.output_dir));
  EXPECT_EQ(report.files.steps.size(), steps.size());
  EXPECT_TRUE(report.files.machine.has_value());
  ASSERT_TRUE(report.timeline.has_value());
  const StepTimeline& t = *report.timeline;
  EXPECT_TRUE(t.whole);
  ASSERT_EQ(t.step, steps.back().step);
  std::int64_t at_ns = 0;
  for (const TimelineBand& band : t.bands) {
    EXPECT_EQ(band.begin_ns, at_ns);
    at_ns = band.end_ns;
  }
  EXPECT_EQ(at_ns, t.ns);

  // The phases and waits of the timeline are those of the step's record.
  const StepTotals& totals = steps.back().totals.value();
  std::array<double, wait_cause_count> waits{};
  for (const PhaseUse& row : report.phases) {
    EXPECT_LE(row.disk_busy_seconds, row.seconds + 1e-9);
    for (std::size_t cause = 0; cause < wait_cause_count; ++cause) waits[cause] += row.wait_seconds[cause];
    if (row.phase == StepPhase::other) continue;
    EXPECT_NEAR(row.seconds, totals.phase_seconds[static_cast<std::size_t>(row.phase)], 1e-6) << name_of(row.phase);
  }
  for (std::size_t cause = 0; cause < wait_cause_count; ++cause) {
    EXPECT_NEAR(waits[cause], totals.wait_seconds[cause], 1e-6) << cause;
  }

  // What lies in memory is never less than nothing, nor more than the pages.
  std::array<std::int64_t, memory_tag_count> bytes{};
  for (std::size_t i = 0; i < t.memory.size(); ++i) {
    bytes[static_cast<std::size_t>(t.memory[i].tag)] += t.memory[i].bytes;
    if (i + 1 < t.memory.size() && t.memory[i + 1].time_ns == t.memory[i].time_ns) continue;
    for (const std::int64_t of_tag : bytes) EXPECT_GE(of_tag, 0);
    EXPECT_LE(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}), t.arena_bytes);
  }
  std::int64_t on_disk = 0;
  for (const TimelineChange& change : t.disk) {
    on_disk += change.bytes;
    EXPECT_GE(change.time_ns, 0);
  }
  EXPECT_GT(on_disk, 0) << "at the smallest budget state lies on the disk between steps";
}

TEST_F(Observed, TheTraceIsStrictAndHasTheBytesOfTheMetrics) {
  options_.clip_mode = "after";  // after the last step nothing is left to update then, whose bytes would be no step's
  run();
  TraceChecker trace(scratch_.text_of("trace.json"));
  EXPECT_THAT(trace.faults, testing::IsEmpty());
  EXPECT_EQ(trace.tracks["step"].size(), 4U);
  EXPECT_GE(trace.tracks["phase"].size(), 4U * 3U);
  EXPECT_GT(trace.flow_count(), 0U);
  double read = 0;
  double written = 0;
  for (const auto& line : metrics()) {
    read += line["disk_read_bytes"].get<double>();
    written += line["disk_write_bytes"].get<double>();
  }
  // Loading and saving move bytes outside of any plan.
  const auto bytes = [&](const char* track) {
    double sum = 0;
    for (const TraceChecker::Slice& slice : trace.tracks[track])
      sum += slice.args["instr"] < 0 ? 0 : slice.args["bytes"].get<double>();
    return sum;
  };
  EXPECT_EQ(bytes("disk read"), read);
  EXPECT_EQ(bytes("disk write"), written);
  const std::int64_t arena = read_flight(options_.output_dir).catalog.arena_bytes;
  for (const auto& sample : trace.counters["memory, bytes"]) EXPECT_EQ(sum_of(sample), static_cast<double>(arena));
  const std::int64_t updates =
      std::count_if(trace.tracks["compute"].begin(), trace.tracks["compute"].end(),
                    [](const TraceChecker::Slice& slice) { return slice.args.value("phase", "") == "update"; });
  EXPECT_GT(updates, 0);
}

// The kernel counts what goes past the page cache, where the file system lets us.
TEST_F(Observed, TheKernelCountsTheSameBytes) {
  const auto config = nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 500, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
  // So that what files and small slots are rounded up to weighs nothing.
  golden::write_model(scratch_ / "larger", config, "");
  options_.model = (scratch_ / "larger").string();
  options_.page_size_bytes = 65536;
  options_.save_steps = -1;
  options_.clip_mode = "after";  // what completes a last step that is deferred is no step's
  options_.memory_bytes = std::int64_t{1} << 40;
  options_.memory_bytes = run_plan(options_).min_memory_bytes;
  RecordingObserver observer;
  run_train(options_, observer);
  const auto direct = [](const std::string& note) { return note.find(", direct") != note.npos; };
  if (std::none_of(observer.notes.begin(), observer.notes.end(), direct)) GTEST_SKIP() << "no direct I/O here";
  const FlightRecord record = read_flight(options_.output_dir);
  std::int64_t read = 0;
  std::int64_t written = 0;
  for (const StepRecord& step : observer.steps) {
    read += step.disk_read_bytes;
    written += step.disk_write_bytes;
  }
  // By counter: when training began, and when it ended and nothing was under way.
  const auto counted = [&](CounterKind kind) {
    std::optional<std::int64_t> first;
    std::int64_t last = 0;
    bool training = false;
    for (const Event& event : record.events) {
      const bool of_training = event.subject == static_cast<std::int32_t>(RunPhase::train);
      if (event.kind == EventKind::phase_begin) training = of_training;
      if (event.kind == EventKind::phase_end && of_training) break;
      if (!training || event.kind != EventKind::counter || event.subject != static_cast<std::int32_t>(kind)) continue;
      if (!first) first = event.value;
      last = event.value;
    }
    return first ? last - *first : -1;
  };
  const std::int64_t kernel_read = counted(CounterKind::system_read_bytes);
  const std::int64_t kernel_written = counted(CounterKind::system_write_bytes);
  if (kernel_read <= 0) GTEST_SKIP() << "the kernel does not count here";
  EXPECT_NEAR(static_cast<double>(kernel_read), static_cast<double>(read), 0.01 * static_cast<double>(read));
  EXPECT_NEAR(static_cast<double>(kernel_written), static_cast<double>(written), 0.01 * static_cast<double>(written));
}

TEST_F(Observed, TheTraceKeepsTheLastSteps) {
  options_.trace_steps = 2;
  run();
  TraceChecker trace(scratch_.text_of("trace.json"));
  EXPECT_THAT(trace.faults, testing::IsEmpty());
  ASSERT_EQ(trace.tracks["step"].size(), 2U);
  EXPECT_EQ(trace.tracks["step"][0].args["step"], 3);
}

TEST_F(Observed, WatchingChangesNoBit) {
  const std::vector<StepRecord> watched = run();
  options_.telemetry = false;
  options_.output_dir = (scratch_ / "dark").string();
  options_.trace = "";
  const std::vector<StepRecord> dark = run();
  ASSERT_EQ(watched.size(), dark.size());
  for (std::size_t s = 0; s < dark.size(); ++s) {
    EXPECT_EQ(watched[s].loss, dark[s].loss);
    EXPECT_EQ(watched[s].grad_norm, dark[s].grad_norm);
    EXPECT_FALSE(dark[s].totals.has_value());
  }
  EXPECT_EQ(scratch_.text_of("out/model.safetensors"), scratch_.text_of("dark/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "dark/flight.bin"));
}

TEST_F(Observed, TheFlightRecordOfARunThatFinishedSaysSo) {
  run();
  const std::vector<std::string> story = story_of(read_flight(options_.output_dir));
  EXPECT_THAT(story, testing::Contains(testing::HasSubstr("the run finished")));
  EXPECT_THAT(story, testing::Contains("4 of 4 steps were done"));
}

}  // namespace
}  // namespace spillway
