#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

#include "base/error.h"
#include "formats/hf_config.h"

namespace spillway {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

json small_llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 256},
          {"hidden_size", 64},
          {"intermediate_size", 160},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-5}};
}

json small_gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 256}, {"n_embd", 64},
          {"n_layer", 2},         {"n_head", 4},       {"n_positions", 128}};
}

json with(json base, const json& changes) {
  base.update(changes);
  return base;
}

ModelConfig parse(const json& config) { return parse_hf_config(config.dump(), "config.json").model; }

void expect_config_refused(const json& config, const std::string& key) {
  EXPECT_THAT([&] { parse(config); },
              Throws<UserError>(Property(&UserError::what, AllOf(HasSubstr("config.json"), HasSubstr(key)))))
      << key;
}

TEST(HfConfig, ReadsALlama) {
  const ModelConfig model = parse(with(small_llama(), {{"rope_theta", 500000.0},
                                                       {"tie_word_embeddings", true},
                                                       {"eos_token_id", {1, 2}},
                                                       {"bos_token_id", 0},
                                                       {"max_position_embeddings", 512},
                                                       {"torch_dtype", "bfloat16"}}));
  EXPECT_EQ(model.family, Family::llama);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.num_key_value_heads, 2);
  EXPECT_EQ(model.key_value_size(), 32);
  EXPECT_EQ(model.rope.theta, 500000.0);
  EXPECT_TRUE(model.tie_word_embeddings);
  EXPECT_FALSE(model.attention_bias);
  EXPECT_THAT(model.eos_token_ids, ElementsAre(1, 2));
  EXPECT_EQ(model.torch_dtype, "bfloat16");
}

TEST(HfConfig, DefaultsAreThoseOfTheFamily) {
  json llama = small_llama();
  llama.erase("num_key_value_heads");
  EXPECT_EQ(parse(llama).num_key_value_heads, 4);
  EXPECT_FALSE(parse(llama).tie_word_embeddings);
  EXPECT_EQ(parse(llama).rope.theta, 10000.0);

  const ModelConfig gpt2 = parse(small_gpt2());
  EXPECT_TRUE(gpt2.tie_word_embeddings);
  EXPECT_EQ(gpt2.intermediate_size, 256);
  EXPECT_EQ(gpt2.norm_epsilon, 1e-5);
  EXPECT_TRUE(gpt2.attention_bias && gpt2.attention_output_bias && gpt2.mlp_bias);

  const ModelConfig qwen2 = parse(with(small_llama(), {{"model_type", "qwen2"}, {"architectures", nullptr}}));
  EXPECT_TRUE(qwen2.attention_bias);
  EXPECT_FALSE(qwen2.attention_output_bias);

  const ModelConfig qwen3 = parse(with(small_llama(), {{"model_type", "qwen3"}, {"architectures", nullptr}}));
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_TRUE(qwen3.query_key_norm());
}

TEST(HfConfig, ReadsBothFormsOfRope) {
  const json scaling{{"rope_type", "llama3"},
                     {"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 8192}};
  const ModelConfig old_form = parse(with(small_llama(), {{"rope_theta", 500000.0}, {"rope_scaling", scaling}}));
  const ModelConfig new_form = parse(
      with(small_llama(), {{"dtype", "float32"}, {"rope_parameters", with(scaling, {{"rope_theta", 500000.0}})}}));
  EXPECT_EQ(old_form.rope, new_form.rope);
  EXPECT_EQ(old_form.rope.scaling, RopeScaling::llama3);
  EXPECT_EQ(new_form.torch_dtype, "float32");
  EXPECT_EQ(parse(with(small_llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}})).rope.factor, 4.0);
}

TEST(HfConfig, RefusesByNameWhatChangesTheMaths) {
  const std::vector<std::pair<json, std::string>> llama_changes{
      {{{"hidden_act", "gelu"}}, "hidden_act"},
      {{{"sliding_window", 64}}, "sliding_window"},
      {{{"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}}}, "type"},
      {{{"rope_scaling", {{"type", "linear"}}}}, "factor"},
      {{{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}}, "partial_rotary_factor"},
      {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor"},
      {{{"quantization_config", {{"bits", 4}}}}, "quantization_config"},
      {{{"num_experts", 8}}, "num_experts"},
      {{{"pretraining_tp", 2}}, "pretraining_tp"},
      {{{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types"},
      {{{"final_logit_softcapping", 30.0}}, "final_logit_softcapping"},
      {{{"residual_multiplier", 0.22}}, "residual_multiplier"},
      {{{"use_mrope", true}}, "use_mrope"},
      {{{"is_encoder_decoder", true}}, "is_encoder_decoder"},
      {{{"some_new_key", "yes"}}, "some_new_key"},
      {{{"n_inner", 7}}, "n_inner"},
      {{{"architectures", {"LlamaForSequenceClassification"}}}, "LlamaForSequenceClassification"},
      {{{"model_type", "mixtral"}}, "mixtral"},
  };
  for (const auto& [change, key] : llama_changes) expect_config_refused(with(small_llama(), change), key);
  const std::vector<std::pair<json, std::string>> gpt2_changes{
      {{{"activation_function", "gelu"}}, "activation_function"},
      {{{"activation_function", "relu"}}, "activation_function"},
      {{{"scale_attn_weights", false}}, "scale_attn_weights"},
      {{{"scale_attn_by_inverse_layer_idx", true}}, "scale_attn_by_inverse_layer_idx"},
      {{{"add_cross_attention", true}}, "add_cross_attention"},
      {{{"rope_theta", 10000.0}}, "rope_theta"},
  };
  for (const auto& [change, key] : gpt2_changes) expect_config_refused(with(small_gpt2(), change), key);
}

TEST(HfConfig, AcceptsWhatChangesNothing) {
  parse(with(small_llama(), {{"use_cache", true},
                             {"_name_or_path", "x/y"},
                             {"transformers_version", "4.40.1"},
                             {"pretraining_tp", 1},
                             {"rope_interleaved", false},
                             {"is_llama_config", true},
                             {"some_new_key", nullptr},
                             {"another", 1.0},
                             {"third", json::array()},
                             {"sliding_window", 4096},
                             {"max_position_embeddings", 4096},
                             {"layer_types", {"full_attention", "full_attention"}}}));
  parse(with(small_llama(), {{"model_type", "qwen2"},
                             {"architectures", {"Qwen2ForCausalLM"}},
                             {"use_sliding_window", false},
                             {"sliding_window", 64},
                             {"max_window_layers", 21}}));
  parse(with(small_gpt2(), {{"activation_function", "gelu_pytorch_tanh"},
                            {"n_ctx", 128},
                            {"reorder_and_upcast_attn", true},
                            {"summary_type", "cls_index"},
                            {"summary_use_proj", true},
                            {"task_specific_params", {{"text-generation", {{"max_length", 50}}}}}}));
}

TEST(HfConfig, NotesDropout) {
  const HfConfig config =
      parse_hf_config(with(small_gpt2(), {{"resid_pdrop", 0.1}, {"summary_first_dropout", 0.1}}).dump(), "config.json");
  EXPECT_THAT(config.notes, ElementsAre(AllOf(HasSubstr("resid_pdrop"), HasSubstr("not applied"))));
}

TEST(HfConfig, RefusesWrongSizes) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    for (const json& value : {json(0), json(-1), json("64"), json(1.5), json(std::int64_t{1} << 62),
                              json(std::numeric_limits<std::uint64_t>::max()), json::array(), json()}) {
      expect_config_refused(with(small_llama(), {{key, value}}), key);
    }
  }
  expect_config_refused(with(small_llama(), {{"num_attention_heads", 5}, {"num_key_value_heads", 5}}), "hidden_size");
  expect_config_refused(with(small_llama(), {{"num_key_value_heads", 3}}), "num_key_value_heads");
  expect_config_refused(with(small_llama(), {{"head_dim", 7}}), "head_dim");
  expect_config_refused(with(small_llama(), {{"rms_norm_eps", 0}}), "rms_norm_eps");
  expect_config_refused(with(small_llama(), {{"tie_word_embeddings", "yes"}}), "tie_word_embeddings");
  expect_config_refused(with(small_llama(), {{"eos_token_id", "</s>"}}), "eos_token_id");
  expect_config_refused(with(small_gpt2(), {{"hidden_size", 32}}), "hidden_size");
  expect_config_refused("[1, 2]"_json, "object");
}

TEST(HfConfig, WhatIsWrittenReadsBackTheSame) {
  std::vector<json> configs{small_llama(), small_gpt2(), with(small_gpt2(), {{"n_inner", 100}})};
  configs.push_back(with(small_llama(), {{"attention_bias", true}, {"mlp_bias", true}, {"eos_token_id", {3, 4}}}));
  configs.push_back(with(small_llama(), {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.5}}}}));
  configs.push_back(with(small_llama(), {{"rope_scaling",
                                          {{"rope_type", "llama3"},
                                           {"factor", 32.0},
                                           {"low_freq_factor", 1.0},
                                           {"high_freq_factor", 4.0},
                                           {"original_max_position_embeddings", 8192}}}}));
  for (const char* type : {"mistral", "qwen2", "qwen3"}) {
    configs.push_back(with(small_llama(), {{"model_type", type}, {"architectures", nullptr}, {"bos_token_id", 1}}));
  }
  for (const json& config : configs) {
    const ModelConfig model = parse(config);
    EXPECT_EQ(parse_hf_config(write_hf_config(model), "written").model, model) << config.dump();
  }
}

ModelConfig rope_model(RopeScaling scaling) {
  ModelConfig model;
  model.head_dim = 128;
  model.rope = {.theta = 500000, .scaling = scaling, .factor = 8};
  return model;
}

TEST(Rope, FrequenciesFallFromOneByTheta) {
  const std::vector<float> plain = rope_inverse_frequencies(rope_model(RopeScaling::none));
  ASSERT_EQ(plain.size(), 64U);
  EXPECT_EQ(plain[0], 1.0F);
  EXPECT_FLOAT_EQ(plain[32], static_cast<float>(1 / std::sqrt(500000.0)));
  const std::vector<float> linear = rope_inverse_frequencies(rope_model(RopeScaling::linear));
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(linear[i], plain[i] / 8);
}

TEST(Rope, Llama3KeepsShortWavesAndStretchesLongOnes) {
  const std::vector<float> plain = rope_inverse_frequencies(rope_model(RopeScaling::none));
  const std::vector<float> scaled = rope_inverse_frequencies(rope_model(RopeScaling::llama3));
  int between = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * M_PI / static_cast<double>(plain[i]);
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(scaled[i], plain[i]) << i;
    } else if (wavelength > 8192.0) {
      EXPECT_EQ(scaled[i], plain[i] / 8) << i;
    } else {
      ++between;
      const double kept = (8192.0 / wavelength - 1) / 3;
      EXPECT_NEAR(scaled[i], plain[i] * (kept + (1 - kept) / 8), 1e-6 * static_cast<double>(plain[i])) << i;
    }
  }
  EXPECT_GT(between, 0);
}

}  // namespace
}  // namespace spillway
