// Promise 6 for disks: whatever fails, and whenever, one sentence reaches the caller, nothing hangs, and no output is
// left half written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "executor/executor.h"
#include "file_size_limit.h"
#include "golden/model_folder.h"
#include "one_choice.h"
#include "recording_observer.h"
#include "scoped_variable.h"
#include "scratch_folder.h"
#include "session/feed.h"
#include "session/session.h"
#include "session/setup.h"
#include "small_file_system.h"
#include "store/faulty_io.h"

namespace spillway {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

nlohmann::json tiny_llama() {
  return nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 600,
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
}

class FaultDisk : public testing::Test {
 protected:
  void SetUp() override {
    golden::write_model(scratch_ / "model", tiny_llama(), "");
    golden::write_tokens(scratch_ / "tokens.npy", 600, 600);
    options_.model = (scratch_ / "model").string();
    options_.data = {(scratch_ / "tokens.npy").string()};
    options_.output_dir = (scratch_ / "out").string();
    options_.max_steps = 2;
    options_.per_device_train_batch_size = 2;
    options_.max_seq_len = 32;
    options_.dtype = "f32";
    leave_one_choice_under_sanitizer(options_);
    options_.threads = 2;
    options_.page_size_bytes = 4096;
    options_.memory_bytes = run_plan(options_).min_memory_bytes;
  }

  std::map<std::string, std::string> files_of(const std::string& folder) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch_ / folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string name = std::filesystem::relative(entry.path(), scratch_.path()).string();
      files[name] = scratch_.text_of(name);
    }
    return files;
  }

  // Trains and expects this kind of error, of one sentence that holds `words`.
  void expect_error(const TrainOptions& options, ExitCode code, const std::vector<std::string>& words) {
    RecordingObserver observer;
    try {
      run_train(options, observer);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      for (const std::string& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
      EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
    }
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(options.output_dir) / "model.safetensors"));
  }

  ScratchFolder scratch_;
  TrainOptions options_;
};

TEST_F(FaultDisk, AMissingSpillDirectoryIsAUserError) {
  options_.spill_dir = {(scratch_ / "nowhere").string()};
  expect_error(options_, ExitCode::user, {"nowhere"});
}

TEST_F(FaultDisk, ASpillDirectoryThatTakesNoFilesIsAUserError) {
  for (const std::string directory : {"/proc/self", "/sys/kernel"}) {
    options_.spill_dir = {directory};
    expect_error(options_, ExitCode::user, {directory});
  }
}

TEST_F(FaultDisk, ASpillDirectoryThatIsAFileIsAUserError) {
  options_.spill_dir = {scratch_.file("file", "").string()};
  expect_error(options_, ExitCode::user, {"file"});
}

TEST_F(FaultDisk, ASpillFileThatMayNotGrowIsADeviceErrorBeforeTheFirstStep) {
  std::filesystem::create_directory(scratch_ / "spill");
  options_.spill_dir = {(scratch_ / "spill").string()};
  const FileSizeLimit limit(64 << 10);
  expect_error(options_, ExitCode::device, {"spill"});
}

// What the run itself needs there is less.
TEST_F(FaultDisk, ADiskThatCannotBeMeasuredInPassingIsAssumed) {
  const ScopedVariable cache("XDG_CACHE_HOME", scratch_ / "cache");
  options_.recompute = "auto";  // for whoever has something to choose
  options_.per_device_train_batch_size = 128;
  options_.page_size_bytes = 64 << 10;
  options_.memory_bytes = run_plan(options_).min_memory_bytes + (6 << 20);  // 16 MiB of pages, to measure in
  const FileSizeLimit limit(64 << 20);
  RecordingObserver observer;
  run_train(options_, observer);
  EXPECT_EQ(observer.steps.size(), 2U);
  EXPECT_THAT(observer.notes, Contains(AllOf(HasSubstr("cannot be measured"), HasSubstr("ulimit -f"))));
  EXPECT_THAT(observer.notes, Contains(HasSubstr("is assumed")));
}

// What it moves is written again where it lies, in slots of which none is free.
TEST_F(FaultDisk, ARunWithoutCommitsNeedsNoSlotsToSpare) {
  options_.save_steps = -1;
  options_.per_device_train_batch_size = 128;
  options_.page_size_bytes = 64 << 10;
  options_.memory_bytes = run_plan(options_).min_memory_bytes + (4 << 20);
  RecordingObserver observer;
  run_train(options_, observer);
  EXPECT_EQ(observer.steps.size(), 2U);
}

TEST_F(FaultDisk, AFullSpillDirectoryIsADeviceErrorThatSaysWhatIsNeeded) {
  const SmallFileSystem small(scratch_ / "small", 256 << 10);
  if (!small.mounted()) GTEST_SKIP() << "mounting a small file system is not allowed here: " << small.why_not();
  options_.spill_dir = {(scratch_ / "small").string()};
  expect_error(options_, ExitCode::device, {"small", "256 KiB free", "--spill-dir"});
}

TEST_F(FaultDisk, ARunThatFailedInItsFirstStepMayBeTriedAgainInItsFolder) {
  std::filesystem::create_directory(scratch_ / "out");
  scratch_.file("out/run.yaml", "model: \"model\"\n");
  scratch_.file("out/metrics.jsonl", "");
  RecordingObserver observer;
  run_train(options_, observer);
  EXPECT_EQ(observer.steps.size(), 2U);
}

TEST_F(FaultDisk, ARunThatLeftRecordsAndNothingToResumeIsRefusedAndUntouched) {
  options_.save_steps = -1;
  RecordingObserver observer;
  run_train(options_, observer);
  for (const char* const name : {"out/model.safetensors", "out/config.json"}) std::filesystem::remove(scratch_ / name);
  const auto before = files_of("out");
  EXPECT_THROW(run_train(options_, observer), UserError);
  EXPECT_TRUE(files_of("out") == before);
}

TEST_F(FaultDisk, AnOutputFolderThatHoldsARunIsRefusedAndUntouched) {
  RecordingObserver observer;
  run_train(options_, observer);
  options_.resume_from_checkpoint = "none";
  const auto before = files_of("out");
  EXPECT_GE(before.size(), 3U);
  try {
    run_train(options_, observer);
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("out"), HasSubstr("already holds")));
  }
  EXPECT_TRUE(files_of("out") == before);
}

TEST_F(FaultDisk, AFolderThatHoldsAModelIsRefusedAndUntouched) {
  options_.output_dir = options_.model;
  const auto before = files_of("model");
  RecordingObserver observer;
  EXPECT_THROW(run_train(options_, observer), UserError);
  EXPECT_TRUE(files_of("model") == before);
}

// --- Requests that fail in the middle ---

// Counts what goes through it.
class CountingEngine final : public IoEngine {
 public:
  CountingEngine(std::unique_ptr<IoEngine> inner, std::int64_t& count) : inner_(std::move(inner)), count_(count) {}
  int add_file(int descriptor) override { return inner_->add_file(descriptor); }
  void submit(const IoRequest& request) override {
    ++count_;
    inner_->submit(request);
  }
  void wait(std::vector<IoCompletion>& done) override { inner_->wait(done); }
  void wake() override { inner_->wake(); }
  int flush(int file) override { return inner_->flush(file); }
  std::string describe() const override { return inner_->describe(); }

 private:
  std::unique_ptr<IoEngine> inner_;
  std::int64_t& count_;
};

// From the request with this number on, those to one file end a byte short, and before all others that are under way.
class ShortFileEngine final : public IoEngine {
 public:
  ShortFileEngine(std::unique_ptr<IoEngine> inner, int file, std::int64_t from)
      : inner_(std::move(inner)), file_(file), left_(from) {}
  int add_file(int descriptor) override { return inner_->add_file(descriptor); }
  void submit(const IoRequest& request) override {
    if (left_-- <= 0 && request.file == file_) short_.insert(request.tag);
    ++under_way_;
    inner_->submit(request);
  }
  void wait(std::vector<IoCompletion>& done) override {
    std::vector<IoCompletion> ended;
    do {
      inner_->wait(ended);
    } while (std::ssize(ended) < under_way_);
    under_way_ = 0;
    const auto is_short = [this](const IoCompletion& end) { return short_.contains(end.tag); };
    std::stable_partition(ended.begin(), ended.end(), is_short);
    for (IoCompletion& end : ended) end.bytes -= short_.erase(end.tag) > 0 ? 1 : 0;
    done.insert(done.end(), ended.begin(), ended.end());
  }
  void wake() override { inner_->wake(); }
  int flush(int file) override { return inner_->flush(file); }
  std::string describe() const override { return inner_->describe(); }

 private:
  std::unique_ptr<IoEngine> inner_;
  int file_;
  std::int64_t left_;
  std::int64_t under_way_ = 0;
  std::set<std::uint64_t> short_;
};

struct Engine {
  const char* name;
  bool allow_uring;
  std::int64_t least_requests = 60;  // of a run: the budget is small enough that things move
  bool device = false;               // the smallest device above the smallest host, which takes part of the moves
  bool takes_back = false;           // each step is speculative, taken back, and its updates are made again
};
void PrintTo(const Engine& engine, std::ostream* out) { *out << engine.name; }

class FaultRequests : public FaultDisk, public testing::WithParamInterface<Engine> {
 protected:
  // Load, two steps, save: everything a run asks of the disk. What it computes does not matter here.
  void run_with(const decltype(ExecutorOptions::wrap_io)& wrap, const std::filesystem::path& output) {
    ExecutorOptions execution;
    execution.threads = 2;
    execution.spill_dirs = spill_dirs_;
    execution.io.allow_uring = GetParam().allow_uring;
    execution.wrap_io = wrap;
    Executor executor(setup_->planned.layout, setup_->planned.programs, setup_->planned.plans, setup_->kernels,
                      execution);
    const Plan& plan = setup_->planned.plans.front();
    executor.settle(plan, plan.entry);
    load_weights(executor, setup_->planned.layout, setup_->model, setup_->folder, setup_->files);
    set_frequencies(executor, 0, setup_->steps.usual().inverse_frequencies, setup_->config.model);
    for (int step = 0; step < 2; ++step) {
      if (GetParam().takes_back) executor.speculate(speculated_);
      run_plan_of(executor, 0);
      if (!GetParam().takes_back) continue;
      executor.revert();
      run_plan_of(executor, setup_->steps.index_of_redo());
    }
    std::filesystem::create_directories(output);
    ExecutorSource source(executor, setup_->model.state());
    save_model(source, setup_->model, &setup_->planned.layout, setup_->folder, setup_->files, output);
  }

  void run_plan_of(Executor& executor, std::int32_t program) const {
    const Plan& plan = setup_->planned.plans[static_cast<std::size_t>(setup_->planned.plan_of(program, false))];
    if (!executor.is_ready_for(plan)) executor.settle(plan, plan.entry);
    executor.run(plan);
  }

  void SetUp() override {
    FaultDisk::SetUp();
    if (GetParam().takes_back) {
      options_.max_grad_norm = 1;
      options_.clip_mode = "speculative";
      options_.save_steps = -1;
      const PlanReport extremes = run_plan(options_);
      options_.memory_bytes = (3 * extremes.min_memory_bytes + extremes.in_memory_bytes) / 4;
    }
    if (GetParam().device) {
      options_.device = "virtual";
      options_.device_memory_bytes = std::int64_t{1} << 40;
      const TrainingSetup roomy(options_);
      options_.device_memory_bytes = roomy.planned.min_device_bytes;
      options_.memory_bytes = roomy.planned.min_memory_bytes;
    }
    setup_.emplace(options_);
    ASSERT_TRUE(setup_->planned.fits());
    if (!GetParam().takes_back) return;
    ASSERT_TRUE(setup_->steps.redo);
    speculated_ = speculated_bundles(setup_->steps.speculated, setup_->model, setup_->planned.layout);
  }

  std::int64_t count_requests() {
    std::int64_t count = 0;
    run_with([&](auto inner) { return std::make_unique<CountingEngine>(std::move(inner), count); },
             scratch_ / "counted");
    return count;
  }

  std::optional<TrainingSetup> setup_;
  std::vector<BundleId> speculated_;
  std::vector<std::filesystem::path> spill_dirs_{scratch_.path()};
};

TEST_P(FaultRequests, AFailureAtAnyRequestReachesTheCallerAsOneSentence) {
  const std::int64_t requests = count_requests();
  ASSERT_GT(requests, GetParam().least_requests);
  constexpr std::uint64_t seed = 20240601;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  std::map<std::string, int> verbs;
  for (int i = 0; i < 40; ++i) {
    IoFaults faults;
    // The first of each thing, the last, and any between.
    faults.fail_at = i == 0 ? 0 : i == 1 ? requests - 1 : static_cast<std::int64_t>(random() % requests);
    faults.error = i % 2 == 0 ? EIO : ENOSPC;
    faults.fail_after = random() % 2 == 0;
    faults.delay_share = random() % 2 == 0 ? 0.3 : 0.0;
    faults.seed = random();
    SCOPED_TRACE(fmt::format("seed {}: request {} of {}, {}", seed, faults.fail_at, requests, faults.error));
    const std::filesystem::path output = scratch_ / ("out" + std::to_string(i));
    std::int64_t count = 0;
    std::string what;
    try {
      run_with(
          [&](auto inner) {
            return std::make_unique<CountingEngine>(make_faulty_engine(std::move(inner), faults), count);
          },
          output);
    } catch (const DeviceError& error) {
      what = error.what();
    }
    // How many requests a move is depends on how its slots lie, so the last numbers are not always reached.
    ASSERT_EQ(!what.empty(), count > faults.fail_at) << what;
    EXPECT_EQ(std::filesystem::exists(output / "model.safetensors"), what.empty());
    if (what.empty()) continue;
    ++verbs[what.substr(0, what.find(' '))];
    EXPECT_THAT(what, AllOf(HasSubstr(scratch_.path().string()), HasSubstr("--spill-dir"),
                            HasSubstr(std::system_category().message(faults.error)), testing::Not(HasSubstr("\n"))));
  }
  EXPECT_GT(verbs["reading"], 5);
  EXPECT_GT(verbs["writing"], 5);
}

TEST_P(FaultRequests, ATransferThatEndsEarlyIsAFailure) {
  constexpr std::uint64_t seed = 77;
  for (std::uint64_t i = 0; i < 8; ++i) {
    IoFaults faults;
    faults.short_share = 0.2;
    faults.seed = seed + i;
    SCOPED_TRACE(fmt::format("seed {}", faults.seed));
    const auto wrap = [&](auto inner) { return make_faulty_engine(std::move(inner), faults); };
    EXPECT_THROW(run_with(wrap, scratch_ / "short"), DeviceError);
  }
}

TEST_P(FaultRequests, TheDiskWhoseTransferEndsEarlyIsTheOneNamed) {
  spill_dirs_ = {scratch_ / "healthy", scratch_ / "ailing"};
  for (const std::filesystem::path& directory : spill_dirs_) std::filesystem::create_directory(directory);
  for (const std::int64_t from : {std::int64_t{0}, count_requests() / 2}) {
    SCOPED_TRACE(fmt::format("from request {}", from));
    const auto wrap = [&](auto inner) { return std::make_unique<ShortFileEngine>(std::move(inner), 1, from); };
    std::string what;
    try {
      run_with(wrap, scratch_ / "early");
    } catch (const DeviceError& error) {
      what = error.what();
    }
    EXPECT_THAT(what, AllOf(HasSubstr("ended after"), HasSubstr(spill_dirs_[1].string()),
                            testing::Not(HasSubstr(spill_dirs_[0].string()))));
  }
}

TEST_P(FaultRequests, CompletionsInAnotherOrderChangeNothing) {
  const auto weights = [&](const char* name, double delay_share) {
    IoFaults faults;
    faults.delay_share = delay_share;
    run_with([&](auto inner) { return make_faulty_engine(std::move(inner), faults); }, scratch_ / name);
    return scratch_.text_of(std::string(name) + "/model.safetensors");
  };
  const std::string expected = weights("in_order", 0.0);
  EXPECT_FALSE(expected.empty());
  EXPECT_TRUE(weights("out_of_order", 0.5) == expected);
}

INSTANTIATE_TEST_SUITE_P(Engines, FaultRequests,
                         testing::Values(Engine{"uring", true}, Engine{"threads", false},
                                         Engine{"device", true, 30, true},
                                         Engine{"taken_back", true, 100, false, true}),
                         [](const testing::TestParamInfo<Engine>& test) { return test.param.name; });

}  // namespace
}  // namespace spillway
