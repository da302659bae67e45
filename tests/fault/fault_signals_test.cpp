// What the signals do to the command: SIGTERM and SIGINT stop it after a step with everything committed, a second one
// at once, SIGUSR1 commits and it goes on.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "golden/model_folder.h"
#include "scratch_folder.h"
#include "session/checkpoint_verbs.h"
#include "session/run_folder.h"
#include "telemetry/flight_record.h"
#include "text/tokenizer.h"

extern char** environ;

namespace spillway {
namespace {

class FaultSignals : public testing::Test {
 protected:
  void SetUp() override {
    golden::write_model(scratch_ / "model", golden::llama_of(2, 64, 600), "");
    golden::write_tokens(scratch_ / "tokens.npy", 3000, 600);
  }

  pid_t start(const std::vector<std::string>& more) {
    std::vector<std::string> words{SPILLWAY_BINARY,
                                   "train",
                                   "--model",
                                   path("model"),
                                   "--data",
                                   path("tokens.npy"),
                                   "--output-dir",
                                   path("out"),
                                   "--max-seq-len",
                                   "32",
                                   "--per-device-train-batch-size",
                                   "2",
                                   "--dtype",
                                   "f32",
                                   "--threads",
                                   "1",
                                   "--memory",
                                   "300MiB"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int stream : {1, 2})
      posix_spawn_file_actions_addopen(&actions, stream, path("log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    pid_t child = -1;
    posix_spawnattr_t attributes;  // what ignores a signal passes that on
    posix_spawnattr_init(&attributes);
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGXFSZ);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    EXPECT_EQ(posix_spawn(&child, SPILLWAY_BINARY, &actions, &attributes, arguments.data(), environ), 0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return child;
  }

  std::string path(const std::string& name) const { return (scratch_ / name).string(); }

  // A run that is tokenising a text, since that takes it a while.
  pid_t start_loading() {
    scratch_.file("model/tokenizer.json", bytes_tokenizer_json());
    std::string text;
    while (text.size() < std::size_t{4} << 20) text += "some words and more of them ";
    scratch_.file("long.txt", text);
    const pid_t child = start({"--max-steps", "1000000", "--save-steps", "1000000", "--data", path("long.txt")});
    while (!std::filesystem::exists(scratch_ / "out") && is_running(child))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return child;
  }

  static bool is_running(pid_t child) {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  }

  void wait_for_steps(std::int64_t steps) const {
    while (last_recorded_step(scratch_ / "out") < steps) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  static int end_of(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }

  std::int64_t committed() const {
    std::int64_t step = 0;
    for (const CheckpointRow& row : list_checkpoints(scratch_ / "out").rows) step = std::max(step, row.step);
    return step;
  }

  ScratchFolder scratch_;
};

TEST_F(FaultSignals, TheFirstStopsAfterAStepThatIsCommitted) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const pid_t child = start({"--max-steps", "1000000"});
    wait_for_steps(last_recorded_step(scratch_ / "out") + 3);
    kill(child, signal);
    const int status = end_of(child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << scratch_.text_of("log");
    EXPECT_EQ(committed(), last_recorded_step(scratch_ / "out"));
    EXPECT_THAT(scratch_.text_of("log"), testing::HasSubstr("the same command goes on"));
    EXPECT_EQ(read_flight(scratch_ / "out").end, FlightEnd::stopped);
  }
}

TEST_F(FaultSignals, AFileThatMayNotGrowIsASentenceAndNoSignal) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{64 * 1024, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const pid_t child = start({"--max-steps", "2", "--save-steps", "-1"});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  const int status = end_of(child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 4) << status << scratch_.text_of("log");
  EXPECT_THAT(scratch_.text_of("log"), testing::ContainsRegex("error: .*File too large"));
}

TEST_F(FaultSignals, ASecondStopsAtOnce) {
  const pid_t child = start({"--max-steps", "1000000"});
  wait_for_steps(2);
  kill(child, SIGTERM);
  kill(child, SIGTERM);
  const int status = end_of(child);
  EXPECT_TRUE(WIFEXITED(status));  // of two signals close to each other one may be all that arrives
  EXPECT_TRUE(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 128 + SIGTERM) << status;
}

TEST_F(FaultSignals, UserSignalCommitsAndTheRunGoesOn) {
  const pid_t child = start({"--max-steps", "1000000", "--save-steps", "1000000"});
  wait_for_steps(2);
  kill(child, SIGUSR1);
  wait_for_steps(last_recorded_step(scratch_ / "out") + 40);
  kill(child, SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(end_of(child)));
  EXPECT_GE(committed(), 2);
  EXPECT_LT(committed(), last_recorded_step(scratch_ / "out"));
}

// Wherever it has come to when the signal arrives.
TEST_F(FaultSignals, ARunThatLoadsEndsCleanly) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const pid_t child = start_loading();
    kill(child, signal);
    const int status = end_of(child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << scratch_.text_of("log");
    EXPECT_THAT(scratch_.text_of("log"), testing::HasSubstr("stopped"));
    std::filesystem::remove_all(scratch_ / "out");
    std::filesystem::remove(scratch_ / "log");
  }
}

TEST_F(FaultSignals, UserSignalWhileItLoadsIsRemembered) {
  const pid_t child = start_loading();
  kill(child, SIGUSR1);
  while (last_recorded_step(scratch_ / "out") < 40 && is_running(child))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  kill(child, SIGKILL);
  const int status = end_of(child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_GE(committed(), 1);
}

}  // namespace
}  // namespace spillway
