// Presets, and the sizes that `spillway init` takes over them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/hf_config.h"
#include "model/presets.h"
#include "session/init_config.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

InitOptions preset(const char* name) {
  InitOptions o;
  o.preset = name;
  return o;
}

std::string refusal(const InitOptions& options) {
  try {
    config_of(options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Presets, AreWholeConfigsThatSurviveTheirFile) {
  for (const Preset& p : presets()) {
    ModelConfig config = p.config;
    if (config.vocab_size == 0) config.vocab_size = 257;
    const std::string text = write_hf_config(config);
    EXPECT_EQ(parse_hf_config(text, "config.json").model, config) << p.name << "\n" << text;
  }
}

TEST(Presets, HaveThePublishedSizes) {
  const ModelConfig& gpt2 = find_preset("gpt2-124m")->config;
  EXPECT_EQ(gpt2.hidden_size, 768);
  EXPECT_EQ(gpt2.vocab_size, 50257);
  const ModelConfig& llama = find_preset("tinyllama-1.1b")->config;
  EXPECT_EQ(llama.intermediate_size, 5632);
  EXPECT_EQ(llama.num_key_value_heads, 4);
  for (const char* name : {"gpt2-124m", "smollm2-135m", "qwen2.5-0.5b", "tinyllama-1.1b", "llama3-8b", "demo"})
    EXPECT_NE(find_preset(name), nullptr) << name;
  EXPECT_EQ(find_preset("gpt5"), nullptr);
}

TEST(InitConfig, TakesThePresetAsItIs) {
  EXPECT_EQ(config_of(preset("smollm2-135m")), find_preset("smollm2-135m")->config);
}

TEST(InitConfig, SizesReplaceThoseOfThePreset) {
  InitOptions o = preset("smollm2-135m");
  o.num_hidden_layers = 2;
  o.hidden_size = 288;
  o.tie_word_embeddings = "false";
  const ModelConfig c = config_of(o);
  EXPECT_EQ(c.num_hidden_layers, 2);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_EQ(c.vocab_size, 49152);
}

TEST(InitConfig, Gpt2HasItsOwnNames) {
  InitOptions o;
  o.arch = "gpt2";
  o.n_embd = 64;
  o.n_layer = 2;
  o.n_head = 4;
  const ModelConfig c = config_of(o);
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.intermediate_size, 256);
  EXPECT_EQ(c.num_key_value_heads, 4);
  EXPECT_TRUE(c.tie_word_embeddings);
  o.hidden_size = 32;
  EXPECT_THAT(refusal(o), HasSubstr("--n-embd"));
}

TEST(InitConfig, AnotherArchKeepsTheSizes) {
  InitOptions o = preset("smollm2-135m");
  o.arch = "qwen3";
  const ModelConfig c = config_of(o);
  EXPECT_EQ(c.family, Family::qwen3);
  EXPECT_EQ(c.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(c.hidden_size, 576);
  o.arch = "gpt2";
  EXPECT_THAT(refusal(o), HasSubstr("gpt2"));
}

TEST(InitConfig, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal(preset("smollm")), HasSubstr("smollm2-135m"));
  InitOptions o;
  o.arch = "llama";
  EXPECT_THAT(refusal(o), HasSubstr("--hidden-size"));
  o.hidden_size = 60;
  o.intermediate_size = 100;
  o.num_hidden_layers = 1;
  o.num_attention_heads = 4;
  EXPECT_THAT(refusal(o), HasSubstr("odd"));
  o.head_dim = 16;
  EXPECT_EQ(refusal(o), "accepted");
  o.num_key_value_heads = 3;
  EXPECT_THAT(refusal(o), HasSubstr("num_key_value_heads 3"));
  o.num_key_value_heads = 0;
  o.n_embd = 60;
  EXPECT_THAT(refusal(o), HasSubstr("--n-embd"));
}

}  // namespace
}  // namespace spillway
