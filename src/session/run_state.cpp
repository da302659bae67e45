#include "session/run_state.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "formats/json_object.h"
#include "ops/dispatch.h"
#include "ops/matmul/matmul.h"
#include "state/state.h"

namespace spillway {
namespace {

// Other values would read other data, or other bits of it.
constexpr std::array must_stay{"max_seq_len", "dtype", "seed", "shuffle", "tile_elements", "moments"};
// Others change how training goes on, which a user may want.
constexpr std::array worth_a_note{"learning_rate",
                                  "lr_scheduler_type",
                                  "warmup_steps",
                                  "decay_steps",
                                  "weight_decay",
                                  "adam_beta1",
                                  "adam_beta2",
                                  "adam_epsilon",
                                  "max_grad_norm",
                                  "max_steps",
                                  "num_train_epochs",
                                  "per_device_train_batch_size",
                                  "gradient_accumulation_steps"};

using Texts = std::map<std::string, std::string>;

std::string text_of(const Texts& texts, const std::string& key) {
  const auto found = texts.find(key);
  return found == texts.end() ? "absent" : found->second;
}

// By whichever path.
bool is_same_folder(const std::string& a, const std::string& b) {
  std::error_code error;
  return a == b || std::filesystem::equivalent(a, b, error);
}

// The first key whose value differs; empty when there is none.
std::string difference(const Texts& a, const Texts& b) {
  for (const auto& [key, text] : a) {
    if (text_of(b, key) != text) return key;
  }
  for (const auto& [key, text] : b) {
    if (!a.contains(key)) return key;
  }
  return {};
}

// A run of no steps reads none, and is told by its steps.
bool both_read_data(const RunState& then, const RunState& now) {
  return !then.data_hash.empty() && !now.data_hash.empty();
}

void check_data(const RunState& then, const RunState& now, std::string_view source) {
  if (!both_read_data(then, now)) return;
  if (then.data_tokens != now.data_tokens) {
    throw UserError(
        "data: {} tokens, but {} was made with {}; give the data it was made with, or resume_from_checkpoint: none and "
        "another output_dir",
        now.data_tokens, source, then.data_tokens);
  }
  if (then.data_hash != now.data_hash) {
    throw UserError(
        "data: the {} tokens are not those that {} was made with (hash {}, was {}); give the data it was made with, or "
        "resume_from_checkpoint: none and another output_dir",
        now.data_tokens, source, now.data_hash, then.data_hash);
  }
}

// --- JSON ---

Texts texts_from(const nlohmann::json& json) {
  Texts texts;
  for (const auto& [key, value] : json.items()) texts.emplace(key, value.get<std::string>());
  return texts;
}

std::int64_t count_from(const nlohmann::json& json) {
  const auto count = json.get<std::int64_t>();
  if (!json.is_number_integer() || count < 0) throw UserError("a count is {}", json.dump());
  return count;
}

RunState state_from(const nlohmann::json& json) {
  RunState state;
  if (const std::int64_t version = count_from(json.at("version")); version != run_state_version)
    throw UserError("its version is {}, and this spillway knows version {}", version, run_state_version);
  state.step = count_from(json.at("step"));
  state.branch = json.value("branch", std::string());
  state.sequences = count_from(json.at("sequences"));
  state.products.beta1 = json.at("adam_beta1_product").get<double>();
  state.products.beta2 = json.at("adam_beta2_product").get<double>();
  state.model = texts_from(json.at("model"));
  state.options = texts_from(json.at("options"));
  state.data_tokens = count_from(json.at("data_tokens"));
  state.data_hash = json.at("data_hash").get<std::string>();
  state.numeric_key = json.at("numeric_key").get<std::string>();
  state.plan_hash = json.at("plan_hash").get<std::string>();
  return state;
}

}  // namespace

Texts facts_of(const ModelConfig& c) {
  Texts facts = {
      {"family", std::string(name_of(c.family))},
      {"vocab_size", fmt::to_string(c.vocab_size)},
      {"hidden_size", fmt::to_string(c.hidden_size)},
      {"intermediate_size", fmt::to_string(c.intermediate_size)},
      {"num_hidden_layers", fmt::to_string(c.num_hidden_layers)},
      {"num_attention_heads", fmt::to_string(c.num_attention_heads)},
      {"num_key_value_heads", fmt::to_string(c.num_key_value_heads)},
      {"head_dim", fmt::to_string(c.head_dim)},
      {"norm_epsilon", fmt::to_string(c.norm_epsilon)},
      {"tie_word_embeddings", fmt::to_string(c.tie_word_embeddings)},
      {"attention_bias", fmt::to_string(c.attention_bias)},
      {"attention_output_bias", fmt::to_string(c.attention_output_bias)},
      {"mlp_bias", fmt::to_string(c.mlp_bias)},
  };
  // Positions are a limit, except where they are weights.
  if (c.family == Family::gpt2) facts["max_position_embeddings"] = fmt::to_string(c.max_position_embeddings);
  if (c.has_rope()) {
    facts["rope"] =
        fmt::format("{} {} {} {} {} {}", c.rope.theta, static_cast<int>(c.rope.scaling), c.rope.factor,
                    c.rope.low_freq_factor, c.rope.high_freq_factor, c.rope.original_max_position_embeddings);
  }
  return facts;
}

Texts texts_of_options(const TrainOptions& options) {
  TrainOptions values = options;
  Texts texts;
  for (const Option& row : options_of(values))
    texts[std::string(row.key)] = fmt::format("{}", fmt::join(texts_of(row), ", "));
  return texts;
}

std::string numeric_key() {
  const Isa bits = std::min(best_isa(), Isa::avx512);  // those of avx512_bf16 too
  return fmt::format("{}; kernels {}{}; sums in blocks of {}", matmul_numeric_key(), name_of(bits),
                     best_isa() == Isa::baseline ? " with exp in two roundings, attention to base 2"
                                                 : " with fused exp, attention to base 2",
                     reduction_block_elements);
}

std::string json_of(const RunState& state) {
  const nlohmann::ordered_json json = {
      {"version", run_state_version},
      {"step", state.step},
      {"branch", state.branch},
      {"sequences", state.sequences},
      {"adam_beta1_product", state.products.beta1},
      {"adam_beta2_product", state.products.beta2},
      {"data_tokens", state.data_tokens},
      {"data_hash", state.data_hash},
      {"numeric_key", state.numeric_key},
      {"plan_hash", state.plan_hash},
      {"model", state.model},
      {"options", state.options},
  };
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

RunState parse_run_state(std::string_view text, std::string_view file) {
  try {
    RunState state = state_from(nlohmann::json::parse(text));
    const auto is_share = [](double product) { return product >= 0 && product <= 1; };
    if (!is_share(state.products.beta1) || !is_share(state.products.beta2))
      throw UserError("its optimizer counters are {} and {}", state.products.beta1, state.products.beta2);
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw UserError("{}: not the state of a run ({})", file, text_of(error));
  } catch (const UserError& error) {
    throw UserError("{}: not a usable state of a run: {}", file, error.what());
  }
}

std::vector<std::string> check_resumable(const RunState& then, const RunState& now, bool allow_numeric_change,
                                         std::string_view source) {
  if (const std::string key = difference(then.model, now.model); !key.empty()) {
    throw UserError(
        "model: {} is {}, but {} was made with {}; give the model it was made with, or resume_from_checkpoint: none "
        "and another output_dir",
        key, text_of(now.model, key), source, text_of(then.model, key));
  }
  check_data(then, now, source);
  for (const std::string key : must_stay) {
    if (text_of(then.options, key) == text_of(now.options, key)) continue;
    throw UserError(
        "{}: {}, but {} was made with {}; give that, or resume_from_checkpoint: none and another output_dir", key,
        text_of(now.options, key), source, text_of(then.options, key));
  }
  std::vector<std::string> notes;
  for (const std::string key : worth_a_note) {
    const std::string was = text_of(then.options, key);
    const std::string is = text_of(now.options, key);
    if (was != is) notes.push_back(fmt::format("{} is {}, and was {} before", key, is, was));
  }
  const std::string was = text_of(then.options, "model");
  const std::string is = text_of(now.options, "model");
  if (!is_same_folder(is, was))
    notes.push_back(fmt::format("model is {}, and was {} before; the weights are those of {}", is, was, source));
  if (then.numeric_key != now.numeric_key && !allow_numeric_change) {
    throw UserError(
        "numeric key: this machine computes with \"{}\", but {} was made with \"{}\", so the numbers would go on "
        "slightly differently; allow_numeric_change: true accepts that",
        now.numeric_key, source, then.numeric_key);
  }
  if (then.numeric_key != now.numeric_key)
    notes.push_back(fmt::format("numeric key is \"{}\", and was \"{}\" before", now.numeric_key, then.numeric_key));
  return notes;
}

std::string difference_of(const RunState& then, const RunState& now) {
  const auto sentence = [](std::string_view key, std::string_view is, std::string_view was) {
    return fmt::format("{} is {}, and was {}", key, is, was);
  };
  if (const std::string key = difference(then.model, now.model); !key.empty())
    return sentence(key, text_of(now.model, key), text_of(then.model, key));
  if (both_read_data(then, now) && (then.data_tokens != now.data_tokens || then.data_hash != now.data_hash))
    return fmt::format("data is {} tokens of hash {}, and was {} of hash {}", now.data_tokens, now.data_hash,
                       then.data_tokens, then.data_hash);
  std::vector<std::string> keys{"model", "resume_from_checkpoint"};
  keys.insert(keys.end(), must_stay.begin(), must_stay.end());
  keys.insert(keys.end(), worth_a_note.begin(), worth_a_note.end());
  for (const std::string& key : keys) {
    if (key == "max_steps" || key == "num_train_epochs") continue;
    const std::string was = text_of(then.options, key);
    const std::string is = text_of(now.options, key);
    if (key == "resume_from_checkpoint" && is == "auto") continue;
    if (key == "model" && is_same_folder(is, was)) continue;
    if (is != was) return sentence(key, is, was);
  }
  return {};
}

}  // namespace spillway
