#include "training_runs.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "session/init_config.h"
#include "text/tokenizer.h"

namespace spillway::bench {
namespace {

constexpr std::int64_t token_count = 200'000;
constexpr std::uint64_t vocab_size = 257;

// uint16 ids that no model knows: speed does not depend on them.
void write_tokens(const std::filesystem::path& path) {
  std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (" + std::to_string(token_count) + ",), }";
  header.resize(117, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00\x76\x00", 10);
  file << header;
  std::uint64_t state = 1;
  for (std::int64_t i = 0; i < token_count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto id = static_cast<std::uint16_t>((state >> 33) % vocab_size);
    file.write(reinterpret_cast<const char*>(&id), 2);
  }
}

InitOptions llama(std::int64_t hidden_size, std::int64_t intermediate_size, std::int64_t layers, std::int64_t heads) {
  InitOptions init;
  init.arch = "llama";
  init.hidden_size = hidden_size;
  init.intermediate_size = intermediate_size;
  init.num_hidden_layers = layers;
  init.num_attention_heads = heads;
  init.num_key_value_heads = heads / 2;
  return init;
}

// A preset, or a llama shape of a size between them.
InitOptions shape_of(const std::string& name) {
  InitOptions init;
  if (name == "llama-30m") {
    init = llama(512, 1408, 8, 8);
  } else if (name == "llama-0.3b") {  // 316 M parameters
    init = llama(1024, 2816, 24, 16);
    init.vocab_size = 32000;
    init.tie_word_embeddings = "true";
  } else {
    init.preset = name;
  }
  init.tokenizer = "bytes";
  return init;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<std::string> items(const std::string& list, char separator) {
  std::vector<std::string> all;
  std::stringstream text(list);
  for (std::string item; std::getline(text, item, separator);) all.push_back(item);
  return all;
}

Settings::Settings(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    given_[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
}
std::string Settings::text(const std::string& key, const std::string& otherwise) const {
  return given_.contains(key) ? given_.at(key) : otherwise;
}
std::int64_t Settings::integer(const std::string& key, std::int64_t otherwise) const {
  return given_.contains(key) ? std::stoll(given_.at(key)) : otherwise;
}
double Settings::real(const std::string& key, double otherwise) const {
  return given_.contains(key) ? std::stod(given_.at(key)) : otherwise;
}

int run_bench(int argc, char** argv, int (*bench)(const Settings&)) {
  try {
    return bench(Settings(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

ModelConfig config_named(const std::string& model) {
  ModelConfig config = config_of(shape_of(model));
  if (config.vocab_size == 0) config.vocab_size = Tokenizer::bytes().vocab_size();
  return config;
}

TrainOptions random_training(const Settings& settings, const std::filesystem::path& dir, const std::string& model) {
  std::filesystem::create_directories(dir);
  InitOptions init = shape_of(model);
  init.output = (dir / model).string();
  if (!std::filesystem::exists(init.output)) run_init(init);
  write_tokens(dir / "tokens.npy");
  TrainOptions options;
  options.model = init.output;
  options.data = {(dir / "tokens.npy").string()};
  options.output_dir = (dir / "out").string();
  options.spill_dir = {dir.string()};
  options.dtype = settings.text("dtype", "auto");
  options.max_seq_len = settings.integer("tokens", 1024);
  options.per_device_train_batch_size = 1;
  options.gradient_accumulation_steps = settings.integer("micro_batches", 4);
  options.max_steps = settings.integer("steps", 3);
  options.max_grad_norm = settings.real("clip", 0);
  options.save_steps = settings.integer("save_steps", -1);  // checkpoint_bench has the cost of commits
  options.clip_mode = settings.text("clip_mode", "auto");
  return options;
}

std::int64_t whole_device_bytes(TrainOptions options, std::int64_t in_memory_bytes) {
  options.memory_bytes = in_memory_bytes;
  options.device_memory_bytes = in_memory_bytes;
  options.update_on = "device";
  return run_plan(options).peak_device_memory_bytes;
}

StepRates run_steps(TrainOptions options, std::int64_t memory_bytes) {
  if (options.max_steps < 2) throw UserError("steps={}: at least 2, since the first warms up", options.max_steps);
  std::filesystem::remove_all(options.output_dir);
  options.memory_bytes = memory_bytes;
  Quiet run;
  run_train(options, run);
  std::filesystem::remove_all(options.output_dir);
  std::vector<double> rates;
  std::vector<double> seconds;
  std::vector<double> update_seconds;
  for (std::size_t s = 1; s < run.steps.size(); ++s) {
    const StepRecord& step = run.steps[s];
    rates.push_back(step.tokens_per_second);
    seconds.push_back(step.step_seconds);
    double before = 0;
    for (const StepPhase phase : {StepPhase::forward, StepPhase::head, StepPhase::recompute, StepPhase::backward}) {
      before += step.totals ? step.totals->phase_seconds[static_cast<std::size_t>(phase)] : 0;
    }
    update_seconds.push_back(step.step_seconds - before);
  }
  return {median(rates), static_cast<double>(run.steps.back().disk_read_bytes + run.steps.back().disk_write_bytes),
          median(seconds), median(update_seconds)};
}

}  // namespace spillway::bench
