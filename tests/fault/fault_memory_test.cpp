// Promise 1, from outside: the command is started under a budget, and the kernel says what it used.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "device/memory_info.h"
#include "golden/model_folder.h"
#include "scratch_folder.h"
#include "text/tokenizer.h"

namespace spillway {
namespace {

using testing::HasSubstr;

// Large enough that the budget decides what moves; the state is about 80 MiB in f32.
nlohmann::json small_llama() {
  return nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 4000,
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
}

struct Ended {
  int exit_code = -1;  // -1: by a signal
  int signal = 0;
  std::int64_t peak_rss_bytes = 0;
  std::string out;
  std::string err;
};

// A control group with a memory limit, for one process; v1 or v2, where this process may make one.
class MemoryGroup {
 public:
  explicit MemoryGroup(std::int64_t limit_bytes) {
    for (const auto& [controller, limit_file] : {std::pair("memory", "memory.limit_in_bytes"), {"", "memory.max"}}) {
      const std::optional<std::filesystem::path> parent = own_group(controller);
      if (!parent) continue;
      std::error_code error;
      path_ = *parent / ("spillway-test-" + std::to_string(getpid()));
      if (!std::filesystem::create_directory(path_, error)) {
        why_not_ = "a control group cannot be made: " + error.message();
        continue;
      }
      made_ = true;
      if (std::filesystem::exists(path_ / limit_file) && write(limit_file, std::to_string(limit_bytes))) {
        limited_ = true;
        return;
      }
      why_not_ = "the control group takes no memory limit";
      remove();
    }
  }
  ~MemoryGroup() { remove(); }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  bool limited() const { return limited_; }
  const std::string& why_not() const { return why_not_; }
  std::string processes_file() const { return path_ / "cgroup.procs"; }

 private:
  // The directory of this process's group under the controller; "" is the unified hierarchy.
  static std::optional<std::filesystem::path> own_group(const std::string& controller) {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
      const std::size_t first = line.find(':');
      const std::size_t second = line.find(':', first + 1);
      if (second == std::string::npos || line.substr(first + 1, second - first - 1) != controller) continue;
      const std::filesystem::path root = std::filesystem::path("/sys/fs/cgroup") / controller;
      const std::filesystem::path own = root / line.substr(second + 2);
      if (std::filesystem::exists(own / "cgroup.procs")) return own;
      if (std::filesystem::exists(root / "cgroup.procs")) return root;
    }
    return std::nullopt;
  }

  bool write(const std::string& name, const std::string& text) const {
    std::ofstream file(path_ / name);
    file << text << std::flush;
    return file.good();
  }

  // The kernel takes a moment to let go of a process that has ended.
  void remove() {
    for (int i = 0; made_ && i < 100; ++i) {
      made_ = ::rmdir(path_.c_str()) != 0;
      if (made_) ::usleep(10000);
    }
  }

  std::filesystem::path path_;
  bool made_ = false;
  bool limited_ = false;
  std::string why_not_ = "there are no control groups";
};

class FaultMemory : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    golden::write_model(scratch_ / "model", small_llama(), "");
    golden::write_tokens(scratch_ / "tokens.npy", 3000, 4000);
  }

  // What follows `spillway`; plan and train are asked the same.
  std::vector<std::string> arguments(const std::string& verb, std::int64_t memory_bytes,
                                     const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {verb,
                                      "--model",
                                      (scratch_ / "model").string(),
                                      "--data",
                                      (scratch_ / "tokens.npy").string(),
                                      "--output-dir",
                                      (scratch_ / ("out" + std::to_string(runs_++))).string(),
                                      "--max-steps",
                                      "2",
                                      "--per-device-train-batch-size",
                                      "2",
                                      "--gradient-accumulation-steps",
                                      "2",
                                      "--max-seq-len",
                                      "64",
                                      "--threads",
                                      "2",
                                      "--dtype",
                                      GetParam()};
    words.insert(words.end(), more.begin(), more.end());
    if (memory_bytes > 0) words.insert(words.end(), {"--memory", std::to_string(memory_bytes)});
    if (verb == "plan") words.emplace_back("--json");
    return words;
  }

  Ended run(const std::vector<std::string>& words, const MemoryGroup* group = nullptr) {
    std::vector<char*> argv{const_cast<char*>(SPILLWAY_BINARY)};
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const std::string out = (scratch_ / "stdout").string();
    const std::string err = (scratch_ / "stderr").string();
    const std::string processes = group != nullptr ? group->processes_file() : "";
    const pid_t child = ::fork();
    if (child == 0) become(argv, out, err, processes);
    int status = 0;
    rusage usage{};
    ::wait4(child, &status, 0, &usage);
    Ended ended;
    if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
    // Counts what this process had when it forked too, which is less.
    ended.peak_rss_bytes = usage.ru_maxrss * kib;
    ended.out = scratch_.text_of("stdout");
    ended.err = scratch_.text_of("stderr");
    return ended;
  }

  nlohmann::json plan(std::int64_t memory_bytes) {
    const Ended ended = run(arguments("plan", memory_bytes));
    EXPECT_THAT(ended.exit_code, testing::AnyOf(0, 3)) << ended.err;
    return nlohmann::json::parse(ended.out);
  }

  std::vector<std::int64_t> budgets() {
    const nlohmann::json report = plan(0);
    const std::int64_t smallest = report["min_memory_bytes"];
    const std::int64_t in_memory = report["in_memory_bytes"];
    EXPECT_GT(in_memory, smallest + 20 * mib);
    return {smallest, (smallest + in_memory) / 2, in_memory};
  }

  ScratchFolder scratch_;
  int runs_ = 0;

 private:
  // In the child: only calls that are safe after fork.
  [[noreturn]] static void become(const std::vector<char*>& argv, const std::string& out, const std::string& err,
                                  const std::string& processes) {
    if (!processes.empty()) {
      const int group = ::open(processes.c_str(), O_WRONLY | O_CLOEXEC);
      if (group < 0 || ::write(group, "0", 1) != 1) ::_exit(99);
    }
    const int to_out = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const int to_err = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ::dup2(to_out, STDOUT_FILENO);
    ::dup2(to_err, STDERR_FILENO);
    ::execv(argv.front(), argv.data());
    ::_exit(98);
  }
};

TEST_P(FaultMemory, TheWholeProcessStaysWithinTheBudget) {
  for (const std::int64_t budget : budgets()) {
    const Ended ended = run(arguments("train", budget));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    ASSERT_LT(peak_rss_bytes(), budget) << "the test itself must be small for the kernel's figure to be the child's";
    EXPECT_LE(ended.peak_rss_bytes, budget) << "of " << format_bytes(budget);
  }
}

TEST_P(FaultMemory, TheWholeProcessStaysWithinTheBudgetWhileItExports) {
  const std::vector<std::string> exporting{"--save-steps", "1", "--export-steps", "1"};
  const Ended planned = run(arguments("plan", 0, exporting));
  const nlohmann::json report = nlohmann::json::parse(planned.out);
  for (const std::string key : {"min_memory_bytes", "in_memory_bytes"}) {
    const std::int64_t budget = report[key];
    const std::vector<std::string> words = arguments("train", budget, exporting);
    const Ended ended = run(words);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(words[6]) / "checkpoint-2/optimizer.safetensors"));
    ASSERT_LT(peak_rss_bytes(), budget) << "the test itself must be small for the kernel's figure to be the child's";
    EXPECT_LE(ended.peak_rss_bytes, budget) << "of " << format_bytes(budget);
  }
}

// Near the smallest budget of each: what may be forced, steps that clip and steps that do not, and hostile settings.
TEST_P(FaultMemory, TheWholeProcessStaysWithinASmallBudgetWhateverIsForced) {
  using Words = std::vector<std::string>;
  const std::vector<Words> all{
      {"--policy", "lru", "--recompute", "block", "--max-grad-norm", "0"},
      {"--policy", "lifetime", "--recompute", "attention", "--clip-mode", "speculative", "--max-grad-norm", "1e9"},
      {"--policy", "everything-on-disk", "--recompute", "cheap", "--clip-mode", "speculative", "--max-grad-norm",
       "1e-3"},
      {"--clip-mode", "deferred", "--max-grad-norm", "1e-3", "--order", "micro-batch"},
      {"--policy", "belady", "--max-grad-norm", "0"},
      {"--clip-mode", "after", "--io-request-size", "4096", "--threads", "1"},
      {"--moments", "8bit", "--allow-uring", "false", "--huge-pages", "false"},
      {"--device", "virtual", "--device-memory", "24MiB"}};
  for (const Words& more : all) {
    SCOPED_TRACE(testing::PrintToString(more));
    const Ended planned = run(arguments("plan", 0, more));
    ASSERT_THAT(planned.exit_code, testing::AnyOf(0, 3)) << planned.err;
    std::int64_t budget = nlohmann::json::parse(planned.out)["min_memory_bytes"];
    const auto mode = std::find(more.begin(), more.end(), "--clip-mode");
    if (mode != more.end()) budget += 8 * mib;  // in which each way of clipping finds room
    const std::vector<std::string> words = arguments("train", budget, more);
    const Ended ended = run(words);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    if (mode != more.end()) {
      std::ifstream metrics(std::filesystem::path(words[6]) / "metrics.jsonl");
      std::string line;
      ASSERT_TRUE(std::getline(metrics, line));
      const std::string went = nlohmann::json::parse(line).value("clip", "");
      EXPECT_THAT(went, testing::AnyOf(mode[1], mode[1] == "speculative" ? "reverted" : mode[1]));
    }
    std::int64_t most = budget;
    if (more.front() == "--device") most += 24 * mib;  // whose memory is this process's, too
    ASSERT_LT(peak_rss_bytes(), most) << "the test itself must be small for the kernel's figure to be the child's";
    EXPECT_LE(ended.peak_rss_bytes, most) << "of " << format_bytes(most);
  }
}

TEST_P(FaultMemory, PlanSaysFitsForExactlyTheBudgetsAtWhichTrainRuns) {
  const std::int64_t smallest = budgets().front();
  for (const std::int64_t budget : {smallest - 1 * mib, smallest, smallest + 1 * mib, smallest * 2, smallest / 4}) {
    const nlohmann::json report = plan(budget);
    const Ended ended = run(arguments("train", budget));
    EXPECT_EQ(report["fits"].get<bool>(), ended.exit_code == 0) << format_bytes(budget) << "\n" << ended.err;
    EXPECT_EQ(report["fits"].get<bool>(), budget >= smallest);
    EXPECT_EQ(report["min_memory_bytes"].get<std::int64_t>(), smallest) << "whatever the budget";
  }
}

TEST_P(FaultMemory, ATooSmallBudgetIsRefusedWithTheSmallestThatWorks) {
  const std::int64_t smallest = budgets().front();
  for (const std::string verb : {"train", "plan"}) {
    const std::vector<std::string> words = arguments(verb, smallest - 1 * mib);
    const Ended ended = run(words);
    EXPECT_EQ(ended.exit_code, 3);
    EXPECT_THAT(ended.err, HasSubstr(format_bytes(smallest)));
    EXPECT_FALSE(std::filesystem::exists(words[6])) << "nothing is written";
  }
}

TEST_P(FaultMemory, IsNotKilledUnderALimitOfTheSameSize) {
  for (const std::int64_t budget : budgets()) {
    const MemoryGroup group(budget);
    if (!group.limited()) GTEST_SKIP() << group.why_not();
    const Ended ended = run(arguments("train", budget), &group);
    EXPECT_EQ(ended.signal, 0) << "killed at " << format_bytes(budget);
    EXPECT_EQ(ended.exit_code, 0) << format_bytes(budget) << ": " << ended.err;
  }
}

// A tokenizer that stays, and a sampler that weighs every token, beside weights that do not all fit.
TEST_P(FaultMemory, GenerationStaysWithinItsSmallestBudgetWithALargeVocabulary) {
  // By text and by another process, since this one must stay small.
  std::vector<std::string> bytes;
  const nlohmann::json base = nlohmann::json::parse(bytes_tokenizer_json());
  for (const auto& [token, id] : base["model"]["vocab"].items()) {
    if (id < 256) bytes.push_back(token);
  }
  std::string tokens;
  std::string merges;
  const auto pair_of = [&](int n) { return std::pair(bytes[static_cast<std::size_t>(n / 256)], bytes[n % 256U]); };
  for (int n = 0; n < 2 * 256 * 256; ++n) {  // all pairs, and those with one more byte
    auto [first, second] = pair_of(n % (256 * 256));
    if (n >= 256 * 256) first += std::exchange(second, bytes.front());
    tokens += fmt::format("{}:{},", nlohmann::json(first + second).dump(), 300 + n);
    merges += fmt::format("{}{}", n == 0 ? "" : ",", nlohmann::json(first + " " + second).dump());
  }
  std::string text = base.dump();
  for (const auto& [mark, more] : {std::pair("\"vocab\":{", tokens), std::pair("\"merges\":[", merges)})
    text.insert(text.find(mark) + std::strlen(mark), more);
  scratch_.file("large.json", text);
  const Ended made = run(
      {"init", "--preset", "demo", "--tokenizer", (scratch_ / "large.json").string(), (scratch_ / "large").string()});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto words = [&](std::int64_t memory_mib) -> std::vector<std::string> {
    return {"generate",  "--model",  (scratch_ / "large").string(),
            "--prompt",  "You may ", "--max-new-tokens",
            "4",         "--top-k",  "0",
            "--threads", "2",        "--dtype",
            GetParam(),  "--memory", std::to_string(memory_mib) + "MiB"};
  };
  const Ended refused = run(words(1));
  ASSERT_EQ(refused.exit_code, 3) << refused.err;
  const std::string says = "the smallest budget that works is ";
  ASSERT_THAT(refused.err, HasSubstr(says));
  const std::int64_t smallest = std::stoll(refused.err.substr(refused.err.find(says) + says.size()));
  const Ended ended = run(words(smallest));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  ASSERT_LT(peak_rss_bytes(), smallest * mib)
      << "the test itself must be small for the kernel's figure to be the child's";
  EXPECT_LE(ended.peak_rss_bytes, smallest * mib) << "of " << smallest << " MiB";
}

INSTANTIATE_TEST_SUITE_P(Dtypes, FaultMemory, testing::Values("f32", "bf16"),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

// Sizes that bench/ measures, in pages of the usual size.
class FaultMemoryOfBench : public FaultMemory {
 protected:
  void SetUp() override { golden::write_tokens(scratch_ / "tokens.npy", 3000, 256); }

  void make_model(const std::vector<std::string>& sizes) {
    std::vector<std::string> words{"init"};
    words.insert(words.end(), sizes.begin(), sizes.end());
    words.insert(words.end(), {"--tokenizer", "bytes", "--dtype", "f32", (scratch_ / "model").string()});
    const Ended made = run(words);
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }

  std::vector<std::string> step_of(std::int64_t tokens) const {
    return {"--max-steps",
            "1",
            "--per-device-train-batch-size",
            "1",
            "--gradient-accumulation-steps",
            "1",
            "--max-seq-len",
            std::to_string(tokens)};
  }

  std::int64_t smallest(std::int64_t tokens) {
    std::vector<std::string> words = arguments("plan", 0, step_of(tokens));
    words.emplace_back("--no-predict");
    const Ended planned = run(words);
    EXPECT_THAT(planned.exit_code, testing::AnyOf(0, 3)) << planned.err;
    return nlohmann::json::parse(planned.out)["min_memory_bytes"];
  }

  void step_stays_within_its_smallest(std::int64_t tokens) {
    const std::int64_t budget = smallest(tokens);
    const Ended ended = run(arguments("train", budget, step_of(tokens)));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    ASSERT_LT(peak_rss_bytes(), budget) << "the test itself must be small for the kernel's figure to be the child's";
    EXPECT_LE(ended.peak_rss_bytes, budget) << "of " << format_bytes(budget);
  }
};

TEST_P(FaultMemoryOfBench, AStepStaysWithinItsSmallestBudgetAndOneOfAThousandTokensHasASmallOne) {
  make_model({"--preset", "gpt2-124m"});
  EXPECT_LE(smallest(1024), 320 * mib);
  step_stays_within_its_smallest(256);
}

// So small that what is not pages is more than half of it.
TEST_P(FaultMemoryOfBench, AStepOfASmallModelStaysWithinItsSmallestBudget) {
  make_model({"--arch", "llama", "--hidden-size", "512", "--intermediate-size", "1408", "--num-hidden-layers", "8",
              "--num-attention-heads", "8", "--num-key-value-heads", "4"});
  step_stays_within_its_smallest(256);
}

// So deep that what is known of each op weighs more than pages.
class FaultMemoryOfADeepModel : public FaultMemoryOfBench {
 protected:
  void SetUp() override {
    FaultMemoryOfBench::SetUp();
    if (IsSkipped()) return;
    make_model({"--arch", "llama", "--hidden-size", "64", "--intermediate-size", "128", "--num-hidden-layers", "48",
                "--num-attention-heads", "2", "--num-key-value-heads", "2"});
  }

  std::vector<std::string> steps(std::vector<std::string> more) const {
    std::vector<std::string> words = step_of(8);
    words.insert(words.end(), {"--threads", "1"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  void run_stays_within(std::int64_t budget, const std::vector<std::string>& more) {
    SCOPED_TRACE(format_bytes(budget) + " " + testing::PrintToString(more));
    const Ended ended = run(arguments("train", budget, more));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    ASSERT_LT(peak_rss_bytes(), budget) << "the test itself must be small for the kernel's figure to be the child's";
    EXPECT_LE(ended.peak_rss_bytes, budget) << ended.peak_rss_bytes / kib << " KiB of " << budget / kib;
  }
};

TEST_P(FaultMemoryOfADeepModel, WhateverIsChosenFromManyPlans) {
  const Ended planned = run(arguments("plan", 0, steps({})));
  const std::int64_t smallest = nlohmann::json::parse(planned.out)["min_memory_bytes"];
  for (const std::int64_t more : {0, 10, 21}) run_stays_within(smallest + more * mib, steps({"--save-steps", "-1"}));
  run_stays_within(smallest + 10 * mib, steps({"--save-steps", "1"}));
  run_stays_within(smallest + 10 * mib, steps({"--metrics-address", "127.0.0.1:0"}));
}

TEST_P(FaultMemoryOfADeepModel, ManyCommitsOfSmallPages) {
  const std::vector<std::string> words = steps({"--save-steps", "1", "--save-total-limit", "64", "--page-size", "16384",
                                                "--max-steps", "70", "--clip-mode", "after"});
  const Ended planned = run(arguments("plan", 0, words));
  run_stays_within(nlohmann::json::parse(planned.out)["min_memory_bytes"], words);
}

TEST_P(FaultMemoryOfADeepModel, ATraceOfManySteps) {
  for (const std::string traced : {"5", "40"}) {
    const std::vector<std::string> words =
        steps({"--save-steps", "-1", "--clip-mode", "after", "--max-steps", traced, "--trace",
               (scratch_ / "trace.json").string(), "--trace-steps", traced});
    const Ended planned = run(arguments("plan", 0, words));
    run_stays_within(nlohmann::json::parse(planned.out)["min_memory_bytes"], words);
    EXPECT_GT(std::filesystem::file_size(scratch_ / "trace.json"), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, FaultMemoryOfADeepModel, testing::Values("f32"),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

INSTANTIATE_TEST_SUITE_P(Dtypes, FaultMemoryOfBench, testing::Values("bf16"),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

}  // namespace
}  // namespace spillway
