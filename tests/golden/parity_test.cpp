// Parity with the PyTorch reference: every case of cases.json, trained in memory and at the smallest budget.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "golden/model_folder.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/session.h"

namespace spillway {
namespace {

const nlohmann::json& cases() {
  static const nlohmann::json all =
      nlohmann::json::parse(std::ifstream(std::string(SPILLWAY_SOURCE_DIR) + "/tests/golden/cases.json")).at("cases");
  return all;
}

TrainOptions options_of_case(const nlohmann::json& options) {
  TrainOptions train;
  const std::vector<Option> rows = options_of(train);
  for (const auto& [key, value] : options.items()) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Option& option) { return option.key == key; });
    EXPECT_NE(row, rows.end()) << key;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    set_option(*row, std::vector<std::string>{text}, key);
  }
  return train;
}

float element(const ModelFolder& folder, const std::string& name, std::int64_t index) {
  float value = 0;
  folder.read(*folder.find(name), 4 * index, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

class Parity : public testing::TestWithParam<std::size_t> {};

TEST_P(Parity, LossesNormsAndWeightsFollowPyTorch) {
  const nlohmann::json& test = cases()[GetParam()];
  const ScratchFolder scratch;
  golden::write_model(scratch / "model", test["config"], test["name_prefix"]);
  golden::write_tokens(scratch / "tokens.npy", test["token_count"], test["config"]["vocab_size"]);
  TrainOptions options = options_of_case(test["options"]);
  options.model = (scratch / "model").string();
  options.data = {(scratch / "tokens.npy").string()};
  options.eval_data = options.data;
  options.threads = 2;
  options.piece_elements = 65536;  // one reduction block: several tiles where the vocabulary has several blocks
  options.tile_elements = 65536;
  for (const bool tight : {false, true}) {
    options.output_dir = (scratch / (tight ? "tight" : "wide")).string();
    options.memory_bytes = tight ? run_plan(options).min_memory_bytes : 0;
    RecordingObserver run;
    run_train(options, run);
    ASSERT_EQ(run.steps.size(), test["steps"].size());
    for (std::size_t s = 0; s < run.steps.size(); ++s) {
      const nlohmann::json& expected = test["steps"][s];
      EXPECT_NEAR(run.steps[s].loss, expected["loss"], 1e-5 * expected["loss"].get<double>()) << "step " << s;
      EXPECT_NEAR(run.steps[s].grad_norm, expected["grad_norm"], 1e-4 * expected["grad_norm"].get<double>())
          << "step " << s;
    }
    EXPECT_NEAR(run.steps.back().eval_loss.value_or(0), test["eval_loss"], 1e-5 * test["eval_loss"].get<double>());
    const ModelFolder written(options.output_dir);
    for (const nlohmann::json& tensor : test["tensors"]) {
      for (const nlohmann::json& sample : tensor["samples"]) {
        EXPECT_NEAR(element(written, tensor["name"], sample[0]), sample[2], 1e-5) << tensor["name"];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Parity, testing::Range<std::size_t>(0, cases().size()),
                         [](const testing::TestParamInfo<std::size_t>& test) {
                           return cases()[test.param]["name"].get<std::string>();
                         });

}  // namespace
}  // namespace spillway
