// Killed with -9 at any instant, a run leaves a flight record that says what it was doing: checked against a log to
// which every event was written before it counted.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "golden/model_folder.h"
#include "one_choice.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/session.h"
#include "telemetry/flight_record.h"

namespace spillway {
namespace {

constexpr int kills = 20;

std::vector<Event> events_in(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<Event> events;
  for (Event event; file.read(reinterpret_cast<char*>(&event), sizeof event);) events.push_back(event);
  return events;
}

std::ptrdiff_t count_of(const std::filesystem::path& log, EventKind kind) {
  return std::ranges::count(events_in(log), kind, &Event::kind);
}

// By the thread that recorded them, in its order. Moves outside a plan (instr -1) are of the same ring as the others.
bool is_of_disk(const Event& event) {
  return event.kind == EventKind::move_submit || event.kind == EventKind::move_complete ||
         (event.kind == EventKind::stay_begin && event.lane != EventLane::compute);
}
bool is_of_compute(const Event& event) {
  return !is_of_disk(event) && event.kind != EventKind::counter && event.kind != EventKind::commit &&
         event.kind != EventKind::note;
}

template <typename Filter>
std::vector<Event> only(const std::vector<Event>& events, Filter filter) {
  std::vector<Event> kept;
  std::copy_if(events.begin(), events.end(), std::back_inserter(kept), filter);
  std::stable_sort(kept.begin(), kept.end(), [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  return kept;
}

// What the rings hold must be the end of the log, but for the very last event, which may have been on its way.
template <typename Filter>
void expect_the_end_of_the_log(const std::vector<Event>& record, std::vector<Event> log, Filter filter) {
  const std::vector<Event> held = only(record, filter);
  log = only(log, filter);
  if (held.empty() || log.empty()) return;
  if (held.back() != log.back()) log.pop_back();
  ASSERT_FALSE(log.empty());
  EXPECT_EQ(held.back(), log.back());
  const std::size_t count = std::min(held.size(), log.size());
  EXPECT_TRUE(std::equal(held.end() - static_cast<std::ptrdiff_t>(count), held.end(),
                         log.end() - static_cast<std::ptrdiff_t>(count)));
}

TEST(FlightRecord, SaysTheTruthWheneverTheRunIsKilled) {
  const ScratchFolder scratch;
  const auto config = nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 500, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
  golden::write_model(scratch / "model", config, "");
  golden::write_tokens(scratch / "tokens.npy", 4000, 500);
  TrainOptions options;
  options.model = (scratch / "model").string();
  options.data = {(scratch / "tokens.npy").string()};
  options.max_steps = 100'000;
  options.per_device_train_batch_size = 2;
  options.max_seq_len = 64;
  options.dtype = "f32";
  leave_one_choice_under_sanitizer(options);
  options.threads = 2;
  options.page_size_bytes = 16384;
  options.memory_bytes = std::int64_t{1} << 40;
  const PlanReport plan = run_plan(options);
  options.memory_bytes = (plan.min_memory_bytes + plan.in_memory_bytes) / 2;

  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int under_way = 0;
  for (int kill = 0; kill < kills; ++kill) {
    SCOPED_TRACE(kill);
    options.output_dir = (scratch / ("out" + std::to_string(kill))).string();
    options.event_log = (scratch / ("log" + std::to_string(kill))).string();
    const pid_t child = ::fork();
    if (child == 0) {
      RecordingObserver observer;
      try {
        run_train(options, observer);
      } catch (...) {
      }
      ::_exit(1);
    }
    // A few while it loads, the others in steps: where the log has a second op_end, the ring has the first.
    const bool in_a_step = kill >= 4;
    while (count_of(options.event_log, in_a_step ? EventKind::op_end : EventKind::phase_begin) < (in_a_step ? 2 : 1)) {
      ASSERT_EQ(::waitpid(child, nullptr, WNOHANG), 0) << "the run ended by itself";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 50'000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));

    const FlightRecord record = read_flight(options.output_dir);
    const std::vector<Event> log = events_in(options.event_log);
    EXPECT_EQ(record.end, FlightEnd::running);
    EXPECT_FALSE(record.process_alive);
    ASSERT_FALSE(log.empty());
    expect_the_end_of_the_log(record.events, log, is_of_compute);
    expect_the_end_of_the_log(record.events, log, is_of_disk);
    const FlightState state = state_of(record.events);
    if (state.current_op.kind == EventKind::op_begin || state.wait.kind == EventKind::wait_begin) ++under_way;
    if (in_a_step) {
      EXPECT_EQ(state.last_op.kind, EventKind::op_end);
    }
    EXPECT_FALSE(story_of(record).empty());
  }
  EXPECT_GT(under_way, 0) << "no kill met an op or a wait";
}

}  // namespace
}  // namespace spillway
