// How well a step is foretold: over models, batches and budgets, the time, the bytes and the memory of a run against
// what the simulator says (a) from the op and move times of that same run, (b) before the run, from the machine's
// rates. A canary of products and one of the disk stand before and after every run; rounds in which one drifts by more
// than 5% are thrown out, and counted. The disk's is that of a run which moves bytes. With probe=1 rates are measured
// before each run anew; with probe=0 they are what the cache has, after the first round from the runs before.
//   predict_bench [settings=model:micro_batches:share,…] [rounds=2] [wanted=ROUNDS] [steps=4] [clip=0] [tokens=512]
//     [probe=1] [detail=0] [dir=bench-data]
// A setting of which `wanted` rounds count is left out of the rounds that follow. With detail=N the N instructions at
// which a replayed step departs most from the measured one, and what ops took by kind and lanes in all.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "base/bytes.h"
#include "base/error.h"
#include "machine_limits.h"
#include "measured_steps.h"
#include "program/spec.h"
#include "session/known_machine.h"
#include "sim/op_rates.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

constexpr double most_drift = 0.05;

// "gpt2-124m:4:0.25": four micro-batches, in a quarter of the memory in which nothing moves.
struct Setting {
  std::string text;
  std::string model;
  std::int64_t micro_batches = 1;
  double share = 1;
};

std::vector<Setting> settings_of(const std::string& list) {
  std::vector<Setting> all;
  for (const std::string& one : items(list)) {
    const std::vector<std::string> parts = items(one, ':');
    all.push_back({one, parts.at(0), std::stoll(parts.at(1)), std::stod(parts.at(2))});
  }
  return all;
}

TrainOptions options_of(const Settings& settings, const Setting& setting) {
  const std::filesystem::path dir = settings.text("dir", "bench-data");
  TrainOptions options = random_training(settings, dir, setting.model);
  options.max_seq_len = settings.integer("tokens", 512);
  options.max_steps = settings.integer("steps", 4);
  options.gradient_accumulation_steps = setting.micro_batches;
  options.memory_bytes = 64 * gib;
  const PlanReport wide = run_plan(options, false);
  const auto share = static_cast<std::int64_t>(setting.share * static_cast<double>(wide.in_memory_bytes));
  options.memory_bytes = std::max(wide.min_memory_bytes, share);
  return options;
}

// Where a replayed step takes longer, or shorter, than the measured one to come from one op to the next.
void print_detail(const TrainingSetup& setup, const MeasuredStep& measured, const Timeline& replayed, int rows) {
  const Plan& plan = setup.planned.plans.front();
  struct Row {
    InstrId id = InstrId::none;
    double measured_wait = 0;
    double replayed_wait = 0;
  };
  std::vector<Row> all;
  double measured_free = 0;
  double replayed_free = 0;
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(LaneId::compute)]) {
    const std::size_t i = index_of(id);
    all.push_back({id, measured.starts[i] - measured_free, replayed.starts[i] - replayed_free});
    measured_free = measured.ends[i];
    replayed_free = replayed.ends[i];
  }
  const auto apart = [](const Row& row) { return std::fabs(row.replayed_wait - row.measured_wait); };
  std::stable_sort(all.begin(), all.end(), [&](const Row& a, const Row& b) { return apart(a) > apart(b); });
  all.resize(std::min(all.size(), static_cast<std::size_t>(rows)));
  std::stable_sort(all.begin(), all.end(), [](const Row& a, const Row& b) { return a.id < b.id; });
  for (const Row& row : all) {
    const Instr& instr = plan.instrs[index_of(row.id)];
    const Op& op = setup.steps.usual().program.ops[index_of(instr.op)];
    std::printf("  %6zu %-40s at %8.4f, replayed %8.4f; waited %8.5f, replayed %8.5f; begins %zu\n", index_of(row.id),
                (std::string(op.spec->name) + " " + describe(op.label)).c_str(), measured.starts[index_of(row.id)],
                replayed.starts[index_of(row.id)], row.measured_wait, row.replayed_wait, instr.begins.size());
    for (const InstrId wait : instr.after) {
      if (plan.instrs[index_of(wait)].lane == LaneId::compute) continue;
      const std::size_t w = index_of(wait);
      std::printf("         waits for %s %zu: %8.4f to %8.4f, replayed %8.4f to %8.4f, took %8.5f\n",
                  std::string(name_of(plan.instrs[w].lane)).c_str(), w, measured.starts[w], measured.ends[w],
                  replayed.starts[w], replayed.ends[w], measured.rates.move_seconds[w]);
    }
  }
}

// What ops of a kind take in a step: as measured, the median of the steps, and as the machine's rates have it.
void print_kinds(const TrainingSetup& setup, const std::vector<MeasuredStep>& measured,
                 const spillway::StepRates& rates) {
  const Program& program = setup.steps.usual().program;
  std::map<std::string, std::vector<double>> kinds;  // the last: predicted
  for (std::size_t s = 0; s <= measured.size(); ++s) {
    const std::vector<double>& seconds = s < measured.size() ? measured[s].rates.op_seconds : rates.op_seconds;
    for (std::size_t op = 0; op < program.ops.size(); ++op) {
      std::vector<double>& sums = kinds[std::string(program.ops[op].spec->name)];
      sums.resize(measured.size() + 1, 0);
      sums[s] += seconds[op];
    }
  }
  for (auto& [name, sums] : kinds) {
    const double predicted = sums.back();
    sums.pop_back();
    const double least = *std::min_element(sums.begin(), sums.end());
    std::printf("  %-20s %9.4f s, least %9.4f s, predicted %9.4f s: %+6.1f%%\n", name.c_str(), median(sums), least,
                predicted, 100 * (predicted / median(sums) - 1));
  }
}

// How long lanes were busy and computing waited: as replayed, and as the machine's rates have it.
void print_lanes(const TrainingSetup& setup, const Timeline& replayed, const spillway::StepRates& rates) {
  const Layout& layout = setup.planned.layout;
  const Plan& plan = setup.planned.plans.front();
  const Timeline predicted = simulate_steady(plan, layout, rates);
  const auto row = [](const char* name, double measured, double foretold) {
    std::printf("  %-20s %9.4f s, predicted %9.4f s\n", name, measured, foretold);
  };
  row("computing", replayed.compute_seconds, predicted.compute_seconds);
  row("waiting", replayed.stalled_seconds, predicted.stalled_seconds);
  row("reading", replayed.read_seconds, predicted.read_seconds);
  row("writing", replayed.write_seconds, predicted.write_seconds);
  std::printf("  the disk's rates: read %.2f, write %.2f, both %.2f GB/s; slow-downs: computing %.3f, disk %.3f\n",
              rates.read_bytes_per_second / 1e9, rates.write_bytes_per_second / 1e9, rates.mixed_bytes_per_second / 1e9,
              rates.compute_slowdown, rates.disk_slowdown);
}

// In a process of its own, so that its peak of memory is its own. Prints one line of numbers.
int run_child(const Settings& settings) {
  Setting setting = settings_of(settings.text("child", "")).front();
  const TrainOptions options = options_of(settings, setting);
  std::filesystem::remove_all(options.output_dir);
  Quiet run;
  run_train(options, run);
  std::filesystem::remove_all(options.output_dir);
  std::vector<double> seconds;
  for (std::size_t s = 1; s < run.steps.size(); ++s) seconds.push_back(run.steps[s].step_seconds);

  TrainingSetup setup(options);
  const KnownMachine machine = recall_machine("", setup.choices, setup.planned.layout.page_bytes);
  const std::vector<MeasuredStep> measured = measure_steps(setup, machine.rates, static_cast<int>(options.max_steps));
  std::vector<PlannedRun> planned;
  for (const MeasuredStep& step : measured) planned.push_back({&setup.planned.plans.front(), &step.rates});
  const std::vector<Timeline> timelines = simulate_runs(planned, setup.planned.layout);
  std::vector<double> errors;
  for (std::size_t s = 1; s < measured.size(); ++s) errors.push_back(timelines[s].seconds / measured[s].seconds - 1);
  if (const std::int64_t rows = settings.integer("detail", 0); rows > 0) {
    print_detail(setup, measured.back(), timelines.back(), static_cast<int>(rows));
    const spillway::StepRates rates = step_rates(setup.steps.usual().program, machine.rates, machine.disk);
    print_kinds(setup, measured, rates);
    print_lanes(setup, timelines.back(), rates);
  }
  std::printf("child %.6f %ld %ld %.6f\n", median(seconds),
              static_cast<long>(run.steps.back().disk_read_bytes + run.steps.back().disk_write_bytes),
              static_cast<long>(run.end.peak_rss_bytes), median(errors));
  return 0;
}

struct Outcome {
  double seconds = 0;
  double bytes = 0;
  double peak_bytes = 0;
  double replay_error = 0;
};

Outcome run_apart(const Settings& settings, const Setting& setting) {
  std::string command = "/proc/" + std::to_string(getpid()) + "/exe 'child=" + setting.text + "'";
  for (const char* key : {"steps", "clip", "tokens", "detail", "dir", "dtype"}) {
    const std::string value = settings.text(key, "");
    if (!value.empty()) command += " '" + std::string(key) + "=" + value + "'";
  }
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw DeviceError("no process for {}", command);
  Outcome outcome;
  char line[4096];
  bool found = false;
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    const bool last = std::sscanf(line, "child %lf %lf %lf %lf", &outcome.seconds, &outcome.bytes, &outcome.peak_bytes,
                                  &outcome.replay_error) == 4;
    if (!last) std::fputs(line, stdout);
    found |= last;
  }
  if (pclose(pipe) != 0 || !found) throw DeviceError("the run failed: {}", command);
  return outcome;
}

struct Canary {
  double products = 0;
  double disk = 0;
};

Canary canary_of(const std::filesystem::path& dir) {
  return {product_rate_bf16(static_cast<int>(std::thread::hardware_concurrency())), disk_mixed_bandwidth(dir, 2 * gib)};
}

double drift_of(const Canary& a, const Canary& b, bool moves) {
  const double products = std::fabs(a.products / b.products - 1);
  return moves ? std::max(products, std::fabs(a.disk / b.disk - 1)) : products;
}

class Errors {
 public:
  void add(double error) { all_.push_back(std::fabs(error)); }
  std::string text() const {
    if (all_.empty()) return "none";
    char line[64];
    std::snprintf(line, sizeof line, "median %.1f%%, most %.1f%%", 100 * median(all_),
                  100 * *std::max_element(all_.begin(), all_.end()));
    return line;
  }

 private:
  std::vector<double> all_;
};

class Table {
 public:
  explicit Table(const Settings& settings) : settings_(settings), dir_(settings.text("dir", "bench-data")) {
    std::printf("%-22s %6s %9s %9s %8s %8s %9s %9s %7s %6s %6s\n", "setting", "MiB", "step s", "before s", "before",
                "replay", "peak MiB", "planned", "peak", "bytes", "drift");
  }

  // Rounds of a setting that were not thrown out.
  std::int64_t counted(const Setting& setting) const {
    return counted_.contains(setting.text) ? counted_.at(setting.text) : 0;
  }

  void round(const Setting& setting) {
    const TrainOptions options = options_of(settings_, setting);
    const Canary start = canary_of(dir_);
    if (settings_.integer("probe", 1) != 0) run_probe(options);
    const PlanReport report = run_plan(options, true);
    const Outcome outcome = run_apart(settings_, setting);
    const auto bytes = static_cast<double>(report.disk_read_bytes_per_step + report.disk_write_bytes_per_step);
    const double drift = drift_of(start, canary_of(dir_), bytes > 0);
    const double before = report.prediction->step_seconds / outcome.seconds - 1;
    const auto planned = static_cast<double>(report.peak_memory_bytes);
    std::printf("%-22s %6ld %9.3f %9.3f %+7.1f%% %+7.1f%% %9.1f %9.1f %+6.1f%% %6s %5.1f%%%s\n", setting.text.c_str(),
                static_cast<long>(options.memory_bytes / mib), outcome.seconds, report.prediction->step_seconds,
                100 * before, 100 * outcome.replay_error, outcome.peak_bytes / static_cast<double>(mib),
                planned / static_cast<double>(mib), 100 * (planned / outcome.peak_bytes - 1),
                bytes == outcome.bytes ? "equal" : "DIFFER", 100 * drift, drift > most_drift ? "  thrown out" : "");
    std::fflush(stdout);
    different_ += bytes == outcome.bytes ? 0 : 1;
    peaks_.add(planned / outcome.peak_bytes - 1);
    over_ += outcome.peak_bytes > planned ? 1 : 0;
    ++rounds_;
    replayed_.add(outcome.replay_error);
    if (drift <= most_drift) {
      before_.add(before);
      ++counted_[setting.text];
    } else {
      ++thrown_;
    }
  }

  void finish() const {
    std::printf("%d rounds, %d thrown out for drift\n", rounds_, thrown_);
    std::printf("before the run: %s\nreplayed, all rounds: %s\n", before_.text().c_str(), replayed_.text().c_str());
    std::printf("peak memory: %s, over in %d; bytes different in %d\n", peaks_.text().c_str(), over_, different_);
  }

 private:
  const Settings& settings_;
  const std::filesystem::path dir_;
  int rounds_ = 0;
  int thrown_ = 0;
  int over_ = 0;
  int different_ = 0;
  std::map<std::string, std::int64_t> counted_;
  Errors before_;
  Errors replayed_;
  Errors peaks_;
};

int bench(const Settings& settings) {
  if (!settings.text("child", "").empty()) return run_child(settings);
  Table table(settings);
  const std::vector<Setting> all = settings_of(settings.text(
      "settings",
      "gpt2-124m:1:1,gpt2-124m:1:0.25,gpt2-124m:2:0.5,gpt2-124m:2:0.25,gpt2-124m:4:0.25,gpt2-124m:4:0.12,"
      "llama-30m:1:1,llama-30m:1:0.3,llama-30m:4:0.5,llama-30m:4:0.25,llama-30m:8:0.25,smollm2-135m:1:0.25,"
      "smollm2-135m:4:0.25"));
  const std::int64_t rounds = settings.integer("rounds", 2);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (const Setting& setting : all) {
      if (table.counted(setting) < settings.integer("wanted", rounds)) table.round(setting);
    }
  }
  table.finish();
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_bench(argc, argv, spillway::bench::bench); }
