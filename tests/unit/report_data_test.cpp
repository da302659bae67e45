// What a report says of a run: from events and files that are known to the last byte, and from damaged ones.
#include "report/report_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <random>

#include "base/error.h"
#include "report/figure.h"
#include "report/page.h"
#include "scratch_folder.h"
#include "telemetry/metrics.h"

namespace spillway {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t page = 1000;

// Two ops, forward of layer 3 and update of no layer, over one weight that stays in memory and one moment that is read
// for the update and written after it.
Catalog small_catalog() {
  Catalog catalog;
  catalog.arena_bytes = 4 * page;
  const std::uint16_t linear = catalog.intern("linear");
  const std::uint16_t forward = catalog.intern("forward");
  const std::uint16_t update = catalog.intern("update");
  const std::uint16_t mlp = catalog.intern("mlp");
  catalog.programs.push_back({{linear, forward, mlp, 3, 0, 0}, {linear, update, mlp, -1, -1, 0}});
  catalog.bundles.push_back({MemoryTag::weights, true, page, "weight"});
  catalog.bundles.push_back({MemoryTag::optimizer, true, page, "</script>moment"});
  catalog.plans.push_back({"train",
                           0,
                           {{EventLane::compute, 0, {0}},
                            {EventLane::read, 1, {1}},
                            {EventLane::compute, 1, {0, 1}},
                            {EventLane::write, 1, {1}}},
                           {{0, page, true, true}, {1, page, false, false}},
                           0.5,
                           0.25});
  return catalog;
}

Event event(EventKind kind, std::int64_t at_us, std::int32_t instr = -1, std::int32_t subject = -1,
            std::int64_t value = 0) {
  return {.time_ns = 1'000'000'000 + at_us * 1000,
          .value = value,
          .step = 7,
          .instr = instr,
          .subject = subject,
          .kind = kind,
          .lane = EventLane::compute,
          .plan = 0,
          .run = 1};
}
Event move(EventKind kind, std::int64_t at_us, EventLane lane, std::int32_t instr) {
  Event e = event(kind, at_us, instr, 1, page);
  e.lane = lane;
  e.disk = 0;
  return e;
}
Event stay_begin(std::int64_t at_us, std::int32_t instr, std::int32_t bundle, std::int32_t stay) {
  Event e = event(EventKind::stay_begin, at_us, instr, bundle, page);
  e.other = stay;
  return e;
}
Event wait(EventKind kind, std::int64_t at_us) {
  Event e = event(kind, at_us, 2, 1);
  e.lane = EventLane::read;
  return e;
}

// In microseconds: host to 10, forward to 100, a read from 60 to 140 that the update waits for from 100 on, the update
// to 180, its write from 180 that goes on after the step, which ends at 200.
std::vector<Event> one_step() {
  return {event(EventKind::step_begin, 0),
          event(EventKind::plan_begin, 10, -1, -1, 1),
          event(EventKind::op_begin, 10, 0, 0),
          stay_begin(60, 1, 1, 1),
          move(EventKind::move_submit, 60, EventLane::read, 1),
          event(EventKind::op_end, 100, 0, 0),
          wait(EventKind::wait_begin, 100),
          move(EventKind::move_complete, 140, EventLane::read, 1),
          wait(EventKind::wait_end, 140),
          event(EventKind::op_begin, 140, 2, 1),
          event(EventKind::op_end, 180, 2, 1),
          move(EventKind::move_submit, 180, EventLane::write, 3),
          event(EventKind::plan_end, 180, -1, -1, 1),
          event(EventKind::step_end, 200),
          move(EventKind::move_complete, 220, EventLane::write, 3)};
}

FlightRecord small_record() {
  FlightRecord record;
  record.catalog = small_catalog();
  record.events = one_step();
  record.end = FlightEnd::finished;
  return record;
}

TEST(StepTimeline, HasWhatTheEventsSay) {
  const StepTimeline t = timeline_of(small_record()).value();
  EXPECT_TRUE(t.whole);
  EXPECT_EQ(t.step, 7);
  EXPECT_EQ(t.ns, 200'000);
  ASSERT_EQ(t.bands.size(), 4U);
  EXPECT_EQ(t.bands[1].phase, StepPhase::forward);
  EXPECT_EQ(t.bands[2].phase, StepPhase::update);
  EXPECT_EQ(t.bands[2].begin_ns, 100'000);
  EXPECT_EQ(t.bands[3].end_ns, 200'000);
  ASSERT_EQ(t.ops.size(), 2U);
  EXPECT_EQ(t.ops[0].layer, 3);
  ASSERT_EQ(t.waits.size(), 1U);
  EXPECT_EQ(t.waits[0].cause, WaitCause::read_optimizer);
  EXPECT_EQ(t.waits[0].phase, StepPhase::update);
  ASSERT_EQ(t.moves.size(), 2U);
  EXPECT_EQ(t.moves[0].bytes, page);
  EXPECT_EQ(t.moves[0].submit_ns, 60'000);
  EXPECT_EQ(t.moves[1].end_ns, 200'000);
  EXPECT_EQ(t.moves[1].bytes, page / 2) << "half of it after the step";
}

TEST(StepTimeline, SaysWhatIsInMemoryAndWhatIsOnTheDiskAlone) {
  const StepTimeline t = timeline_of(small_record()).value();
  std::int64_t moment_in_memory = 0;
  std::int64_t moment_on_disk = 0;
  for (const TimelineChange& change : t.memory) {
    if (change.tag == MemoryTag::optimizer && change.time_ns <= 100'000) moment_in_memory += change.bytes;
  }
  for (const TimelineChange& change : t.disk) {
    if (change.time_ns <= 100'000) moment_on_disk += change.bytes;
  }
  EXPECT_EQ(moment_in_memory, page);
  EXPECT_EQ(moment_on_disk, 0);
  EXPECT_EQ(t.disk.front().time_ns, 0);
  EXPECT_EQ(t.disk.front().bytes, page) << "before it is read";
}

// The same step where the moment comes up to a device and goes down from it.
FlightRecord record_on_a_device() {
  FlightRecord record = small_record();
  record.catalog.device_bytes = 3 * page;
  for (CatalogStay& stay : record.catalog.plans.front().stays) stay.memory = EventMemory::device;
  const auto link_of = [](EventLane lane) {
    if (lane == EventLane::read) return EventLane::up;
    return lane == EventLane::write ? EventLane::down : lane;
  };
  for (CatalogInstr& instr : record.catalog.plans.front().instrs) instr.lane = link_of(instr.lane);
  for (Event& e : record.events) {
    e.lane = link_of(e.lane);
    e.disk = no_disk;
  }
  return record;
}

TEST(StepTimeline, CopiesAreOfTheLinkAndTheirPagesOfTheDevice) {
  const StepTimeline t = timeline_of(record_on_a_device()).value();
  ASSERT_EQ(t.moves.size(), 2U);
  EXPECT_EQ(t.moves[0].lane, EventLane::up);
  EXPECT_EQ(t.moves[0].bytes, page);
  EXPECT_EQ(t.moves[1].lane, EventLane::down);
  ASSERT_EQ(t.waits.size(), 1U);
  EXPECT_EQ(t.waits[0].cause, WaitCause::up_optimizer);
  EXPECT_TRUE(t.memory.empty());
  std::int64_t on_device = 0;
  for (const TimelineChange& change : t.device) on_device += change.time_ns <= 100'000 ? change.bytes : 0;
  EXPECT_EQ(on_device, 2 * page);
  EXPECT_EQ(t.device_bytes, 3 * page);
  const std::vector<PhaseUse> phases = phase_table(t);
  for (const PhaseUse& row : phases) EXPECT_EQ(row.disk_busy_seconds + row.read_bytes + row.write_bytes, 0);
  EXPECT_NEAR(phases[0].link_busy_seconds, 40e-6, 1e-12);
  EXPECT_NEAR(phases[0].up_bytes + phases[1].up_bytes, page, 1e-6);
  EXPECT_THAT(sentences_of(t, phases).back(), HasSubstr("mostly for optimizer state to come up to the device"));
}

TEST(StepTimeline, AWaitIsPutDownToALinkAndToWhatMovesOverIt) {
  const std::vector<std::pair<EventLane, std::string>> links{
      {EventLane::read, "read"}, {EventLane::write, "write"}, {EventLane::up, "up"}, {EventLane::down, "down"}};
  for (const auto& [lane, link] : links) {
    for (const MemoryTag tag :
         {MemoryTag::weights, MemoryTag::optimizer, MemoryTag::gradients, MemoryTag::activations}) {
      FlightRecord record = small_record();
      record.catalog.bundles[1].tag = tag;
      for (Event& e : record.events) {
        if (e.kind == EventKind::wait_begin || e.kind == EventKind::wait_end) e.lane = lane;
      }
      const StepTimeline t = timeline_of(record).value();
      ASSERT_EQ(t.waits.size(), 1U);
      EXPECT_EQ(name_of(t.waits[0].cause), fmt::format("{}_{}", link, name_of(tag)));
      EXPECT_THAT(words_of(t.waits[0].cause), HasSubstr(std::string(name_of(tag))));
    }
  }
}

TEST(StepTimeline, AStepWithoutItsEndIsShownWhenThereIsNoOther) {
  FlightRecord record = small_record();
  record.events.resize(9);
  const StepTimeline t = timeline_of(record).value();
  EXPECT_FALSE(t.whole);
  EXPECT_EQ(t.ns, 140'000);
  record.events.resize(1);
  EXPECT_FALSE(timeline_of(record).has_value());
  record.events.clear();
  EXPECT_FALSE(timeline_of(record).has_value());
}

TEST(PhaseTable, AddsUpAndNamesWhoWaitsAndWhenTheDiskIsIdle) {
  const StepTimeline t = timeline_of(small_record()).value();
  const std::vector<PhaseUse> phases = phase_table(t);
  ASSERT_EQ(phases.size(), 3U);  // forward, update, other
  double seconds = 0;
  for (const PhaseUse& row : phases) seconds += row.seconds;
  EXPECT_NEAR(seconds, 200e-6, 1e-12);
  EXPECT_NEAR(phases[0].disk_busy_seconds, 40e-6, 1e-12);
  EXPECT_NEAR(phases[0].disk_idle_seconds(), 50e-6, 1e-12);
  EXPECT_NEAR(phases[1].waiting_seconds, 40e-6, 1e-12);
  EXPECT_NEAR(phases[0].read_bytes + phases[1].read_bytes, page, 1e-6);
  const auto sentences = sentences_of(t, phases);
  EXPECT_THAT(sentences,
              ElementsAre(HasSubstr("Forward leaves the disk idle"), HasSubstr("Update waits for the disk")));
  EXPECT_THAT(sentences[1], HasSubstr("(50% of its time), mostly for optimizer state to be read"));
}

TEST(RunCurves, MarkSlowStepsAndThinWithoutLosingTotals) {
  std::vector<StepRecord> steps(5001);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i].step = static_cast<std::int64_t>(i) + 1;
    steps[i].step_seconds = i == 1234 ? 5.0 : 1.0;
    steps[i].tokens = 10;
    steps[i].loss = 2;
  }
  const auto slow = slow_steps(steps);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].step, 1235);
  EXPECT_EQ(slow[0].median_seconds, 1.0);
  const Thinned thinned = thin(steps);
  EXPECT_LE(thinned.steps.size(), most_curve_points);
  EXPECT_EQ(thinned.steps.back().step, 5001);
  EXPECT_EQ(thinned.steps[5].loss, 2);
  EXPECT_EQ(totals_of(steps).tokens, 50010);
  EXPECT_EQ(totals_of(steps).seconds, 5005.0);
  EXPECT_TRUE(slow_steps({}).empty());
  EXPECT_TRUE(thin({}).steps.empty());
}

StepRecord some_record(std::int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 2.5F;
  record.step_seconds = 0.5;
  record.tokens = 64;
  record.tokens_per_second = 128;
  record.eval_loss = 2.25;
  record.totals.emplace();
  record.totals->phase_seconds = {0.1, 0.1, 0, 0.2, 0.05, 0.05};
  record.totals->memory_bytes = {1, 2, 3, 4, 5};
  return record;
}

TEST(RunFiles, ReadBackWhatARunWrites) {
  const StepRecord record = some_record(3);
  EXPECT_EQ(json_of(record_from_json(json_of(record)).value()), json_of(record));
  for (const char* line : {"", "{", "[]", "7", "{\"step\": 1}", "{\"step\": \"x\"}"}) {
    EXPECT_FALSE(record_from_json(line).has_value()) << line;
  }
}

TEST(RunFiles, SayWhatIsMissingOrDamagedByName) {
  const ScratchFolder folder;
  EXPECT_THROW(read_run(folder.path() / "none"), UserError);
  EXPECT_THROW(read_run(folder.path()), UserError);
  folder.file("metrics.jsonl", json_of(some_record(1)) + "\n{\"step\": 2, \"lo\n" + json_of(some_record(3)) + "\n");
  folder.file("flight.bin", std::string(9000, 'x'));
  folder.file("machine.json", "{");
  const RunFiles run = read_run(folder.path());
  EXPECT_EQ(run.steps.size(), 2U);
  EXPECT_FALSE(run.flight);
  EXPECT_THAT(run.notes, Contains(HasSubstr("metrics.jsonl: 1 of 3 lines")));
  EXPECT_THAT(run.notes, Contains(HasSubstr("line 2")));
  EXPECT_THAT(run.notes, Contains(HasSubstr("flight.bin: is no flight record")));
  EXPECT_THAT(run.notes, Contains(HasSubstr("machine.json")));
  EXPECT_THAT(run.notes, Contains(HasSubstr("run.yaml: is not there")));
}

// A folder with everything that a run leaves, as files.
void write_run(const std::filesystem::path& folder) {
  FlightFile flight(folder / flight_file_name, ring_capacities_for(10, 1));
  flight.describe(small_catalog());
  EventRecorder& recorder = flight.recorder();
  recorder.set_step(1);
  recorder.step_begin();
  recorder.plan_begin({1, 0, 1}, 1);
  recorder.op_begin({1, 0, 1}, 0, 0);
  recorder.stay_begin(EventLane::read, {1, 0, 1}, 1, 1, page, 1);
  recorder.move_submit({1, 0, 1}, 1, EventLane::read, 1, page, 0, 1);
  recorder.op_end({1, 0, 1}, 0, 0);
  recorder.wait_begin({1, 0, 1}, 2, EventLane::read, 0, 1);
  recorder.move_complete({1, 0, 1}, 1, EventLane::read, 1, page, 0, 0);
  recorder.wait_end({1, 0, 1}, 2, EventLane::read, 0, 1);
  recorder.op_begin({1, 0, 1}, 2, 1);
  recorder.op_end({1, 0, 1}, 2, 1);
  recorder.plan_end({1, 0, 1}, 1);
  recorder.step_end(2.5);
  flight.keep_steps();
  MetricsFile(folder / "metrics.jsonl").write(some_record(1));
}

TEST(ReportedRun, SaysHowNearItsBoundAStepIsAndHowTheRunEnded) {
  RunFiles files;
  files.steps = {some_record(1)};
  files.steps.front().lower_bound_seconds = 0.4;
  files.flight = small_record();
  files.flight->end = FlightEnd::stopped;
  ReportedRun report = report_of(files);
  EXPECT_THAT(report.bound_sentences, Contains(HasSubstr("reaches 80% of that bound")));
  EXPECT_EQ(report.state, "stopped");
  files.steps.front().lower_bound_seconds = 0.6;
  report = report_of(files);
  EXPECT_THAT(report.bound_sentences, Contains(HasSubstr("less than its bound of 0.600 s")));
  EXPECT_THAT(report.bound_sentences, Not(Contains(HasSubstr("no schedule"))));
}

TEST(ReportedRun, IsWholeWhateverTheFilesHold) {
  const ScratchFolder folder(ScratchFolder::in_memory());
  write_run(folder.path());
  const std::string flight = folder.text_of("flight.bin");
  const std::string metrics = folder.text_of("metrics.jsonl");
  ASSERT_TRUE(report_of(read_run(folder.path())).timeline.has_value());
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto damaged = [&](std::string text, std::size_t from) {
    for (int flips = 0; flips < 3; ++flips) {
      const std::size_t at = from + random() % (text.size() - from);
      text[at] = static_cast<char>(random());
    }
    return text.substr(0, random() % 4 == 0 ? random() % text.size() : text.size());
  };
  for (int round = 0; round < 300; ++round) {
    folder.file("flight.bin", damaged(flight, round % 2 == 0 ? 0 : flight.size() - 700));
    folder.file("steps.bin", damaged(flight, 0));
    folder.file("metrics.jsonl", damaged(metrics, 0));
    try {
      const std::vector<ReportedRun> runs{report_of(read_run(folder.path()))};
      EXPECT_TRUE(nlohmann::json::accept(json_of(runs, "1")));
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(folder.path().string()));
    }
  }
}

TEST(ReportPage, NothingFromAFileLeavesItsPlace) {
  const ScratchFolder scratch;
  const std::filesystem::path folder = scratch.path() / "<img src=x onerror=alert(1)> 'a\xff";
  std::filesystem::create_directory(folder);
  write_run(folder);
  std::vector<ReportedRun> runs{report_of(read_run(folder))};
  runs[0].files.config.push_back({"model", "</script><b>", false});
  const std::string data = json_of(runs, "1.2.3");
  EXPECT_THAT(data, Not(HasSubstr("<")));
  const auto json = nlohmann::json::parse(data);
  EXPECT_THAT(json["runs"][0]["name"].get<std::string>(), HasSubstr("<img src=x onerror=alert(1)> 'a"));
  EXPECT_EQ(json["runs"][0]["timeline"]["bundles"][1], "</script>moment");
  if (report_page_missing.empty()) {
    EXPECT_THAT(page_with(data), HasSubstr(data));
    EXPECT_THAT(page_with(data), HasSubstr("Leon Sorokin")) << "the licence of the chart library";
  } else {
    EXPECT_THROW(page_with(data), UserError);
  }
  const std::string script = figure_script(runs[0], "it's.png");
  EXPECT_THAT(script, HasSubstr("set output 'it''s.png'"));
}

}  // namespace
}  // namespace spillway
