// Verbs from end to end on a tiny model.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "command_outcome.h"
#include "scratch_folder.h"

namespace spillway {

// A folder with a tiny model, a text, and paths in it.
class Verbs : public testing::Test {
 protected:
  void SetUp() override {
    const Outcome outcome = run(init({"--hidden-size", "16", path("model")}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    std::string text;
    for (int i = 0; i < 40; ++i) text += "some words and " + std::to_string(i) + " more\n";
    folder_.file("data.txt", text);
  }

  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  static std::vector<std::string> init(std::vector<std::string> more) {
    std::vector<std::string> all{"init",  "--arch",
                                 "llama", "--tokenizer",
                                 "bytes", "--num-attention-heads",
                                 "2",     "--num-hidden-layers",
                                 "1",     "--intermediate-size",
                                 "24"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> train(std::vector<std::string> more) const {
    std::vector<std::string> all{"train",        "--model",       path("model"), "--data", path("data.txt"),
                                 "--output-dir", path("out"),     "--max-steps", "2",      "--dtype",
                                 "f32",          "--max-seq-len", "16"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  const ScratchFolder folder_;
};

}  // namespace spillway
