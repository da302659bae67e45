#include <cmath>
#include <cstring>
#include <numbers>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/atomic_file.h"
#include "formats/file.h"
#include "formats/hf_config.h"
#include "formats/safetensors.h"
#include "model/schema.h"
#include "session/init_config.h"
#include "session/model_files.h"
#include "session/session.h"
#include "text/tokenizer.h"

namespace spillway {
namespace {

constexpr std::int64_t block_elements = std::int64_t{1} << 18;
constexpr std::int64_t tokenizer_file_limit_bytes = 512 * mib;

std::uint64_t mix(std::uint64_t z) {  // splitmix64
  z += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

std::uint64_t stream_of(std::uint64_t seed, const std::string& name) {
  std::uint64_t state = mix(seed);
  for (const char c : name) state = mix(state ^ static_cast<unsigned char>(c));
  return state;
}

// The i-th normal number of a stream (Box and Muller), whatever was drawn before.
float normal(std::uint64_t stream, std::int64_t i) {
  const std::uint64_t a = mix(stream + 2 * static_cast<std::uint64_t>(i));
  const std::uint64_t b = mix(stream + 2 * static_cast<std::uint64_t>(i) + 1);
  const double u = static_cast<double>((a >> 11) + 1) * 0x1p-53;  // in (0, 1]
  const double v = static_cast<double>(b >> 11) * 0x1p-53;
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
}

float scale_of(const Parameter& parameter, const ModelConfig& config) {
  const double scale = config.initializer_range;
  if (parameter.init != Init::residual_normal) return static_cast<float>(scale);
  return static_cast<float>(scale / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers)));
}

void store(float value, DType dtype, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const std::uint16_t half = dtype == DType::bf16 ? round_bf16(value) : round_f16(value);
  std::memcpy(to, &half, sizeof half);
}

DType dtype_of(const InitOptions& options) {
  return options.dtype == "bf16" ? DType::bf16 : options.dtype == "f16" ? DType::f16 : DType::f32;
}

class WeightWriter {
 public:
  WeightWriter(const InitOptions& options, const ModelConfig& config)
      : options_(options), config_(config), dtype_(dtype_of(options)), parameters_(parameters_of(config)) {}

  InitReport write() {
    InitReport report;
    std::vector<SafetensorsTensor> tensors;
    for (const Parameter& parameter : parameters_) {
      tensors.push_back({stored_name(parameter), std::string(stored_name_of(dtype_)), parameter.shape});
      report.parameters += parameter.elements();
    }
    ModelFolderWriter writer(options_.output, tensors);
    for (const Parameter& parameter : parameters_) write(parameter, writer);
    writer.finish();
    report.bytes = report.parameters * size_of(dtype_);
    return report;
  }

 private:
  std::string stored_name(const Parameter& parameter) const {
    const bool prefixed = config_.family == Family::gpt2 && parameter.name != "lm_head.weight";
    return prefixed ? "transformer." + parameter.name : parameter.name;
  }

  void write(const Parameter& parameter, ModelFolderWriter& writer) const {
    const std::uint64_t stream = stream_of(static_cast<std::uint64_t>(options_.seed), parameter.name);
    const float scale = scale_of(parameter, config_);
    std::vector<std::byte> block;
    for (std::int64_t at = 0; at < parameter.elements(); at += block_elements) {
      const std::int64_t count = std::min(block_elements, parameter.elements() - at);
      block.resize(static_cast<std::size_t>(count * size_of(dtype_)));
      for (std::int64_t i = 0; i < count; ++i) {
        const float value = parameter.init == Init::ones    ? 1.0F
                            : parameter.init == Init::zeros ? 0.0F
                                                            : scale * normal(stream, at + i);
        store(value, dtype_, block.data() + i * size_of(dtype_));
      }
      writer.write(stored_name(parameter), at * size_of(dtype_), block);
    }
  }

  const InitOptions& options_;
  const ModelConfig& config_;
  DType dtype_;
  std::vector<Parameter> parameters_;
};

void make_output(const std::filesystem::path& dir) {
  std::error_code error;
  if (std::filesystem::exists(dir, error) && !std::filesystem::is_empty(dir, error)) {
    throw UserError("{}: is not empty; name a new folder, or remove it", dir.string());
  }
  std::filesystem::create_directories(dir, error);
  if (error) throw UserError("{}: cannot be made: {}", dir.string(), error.message());
}

void write_tokenizer(const InitOptions& options) {
  const std::filesystem::path to(options.output);
  if (options.tokenizer == "bytes") {
    write_file_atomically(to / "tokenizer.json", bytes_tokenizer_json());
    write_file_atomically(to / "tokenizer_config.json", bytes_tokenizer_config_json());
    return;
  }
  const std::filesystem::path from(options.tokenizer);
  if (!std::filesystem::is_directory(from)) {
    write_file_atomically(to / "tokenizer.json", read_small_file(from, tokenizer_file_limit_bytes));
    return;
  }
  for (const std::string_view name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    if (!std::filesystem::exists(from / name)) continue;
    write_file_atomically(to / name, read_small_file(from / name, tokenizer_file_limit_bytes));
  }
}

std::int64_t bytes_of(const ModelConfig& config, const InitOptions& options) {
  std::int64_t elements = 0;
  for (const Parameter& parameter : parameters_of(config)) elements += parameter.elements();
  return elements * size_of(dtype_of(options));
}

std::string generation_config(const ModelConfig& config) {
  std::string text = "{\n  \"_from_model_config\": true";
  if (config.bos_token_id) text += fmt::format(",\n  \"bos_token_id\": {}", *config.bos_token_id);
  if (!config.eos_token_ids.empty()) text += fmt::format(",\n  \"eos_token_id\": {}", config.eos_token_ids.front());
  return text + "\n}\n";
}

}  // namespace

InitReport run_init(const InitOptions& options) {
  validate(options);
  ModelConfig config = config_of(options);
  const Tokenizer tokenizer = options.tokenizer == "bytes" ? Tokenizer::bytes() : Tokenizer::load(options.tokenizer);
  if (config.vocab_size == 0) config.vocab_size = tokenizer.vocab_size();
  if (config.vocab_size < tokenizer.vocab_size()) {
    throw UserError("vocab_size: {} is less than the {} ids of the tokenizer; leave it out, or give at least that",
                    config.vocab_size, tokenizer.vocab_size());
  }
  config.bos_token_id = tokenizer.begin_token();  // a preset's are those of another tokenizer
  config.eos_token_ids.clear();
  if (tokenizer.end_token()) config.eos_token_ids.push_back(static_cast<std::int64_t>(*tokenizer.end_token()));
  config.torch_dtype = options.dtype == "bf16" ? "bfloat16" : options.dtype == "f16" ? "float16" : "float32";
  parse_hf_config(write_hf_config(config), "the model asked for");  // refuses what the other verbs would
  make_output(options.output);
  require_space(options.output, bytes_of(config, options));
  const std::filesystem::path to(options.output);
  write_tokenizer(options);
  write_file_atomically(to / "config.json", write_hf_config(config));
  write_file_atomically(to / "generation_config.json", generation_config(config));
  return WeightWriter(options, config).write();
}

}  // namespace spillway
