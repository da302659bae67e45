// The texts of a training run as windows, and how many steps they make.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "session/setup.h"
#include "text/dataset.h"

namespace spillway {

// Optimizer steps of a run: max_steps, or what makes num_train_epochs of so many windows.
std::int64_t total_steps_of(const TrainOptions& options, std::int64_t windows, std::int64_t sequences_per_step);

class TrainingData {
 public:
  // Tokenises into nameless files in the output folder, and adds to the setup's notes what was replaced or cut. Calls
  // `between` now and then; what that throws ends it. Throws as read_tokens and Windows do.
  TrainingData(TrainingSetup& setup, const std::function<void()>& between);
  TrainingData(const TrainingData&) = delete;
  TrainingData& operator=(const TrainingData&) = delete;

  const TokenStore* tokens() const { return tokens_ ? &*tokens_ : nullptr; }  // null: no step is to be made
  const Windows* windows() const { return windows_ ? &*windows_ : nullptr; }  // of them
  const Windows* eval_windows() const { return eval_windows_ ? &*eval_windows_ : nullptr; }  // null: no eval_data
  std::int64_t total_steps() const { return total_steps_; }

 private:
  std::optional<TokenStore> tokens_;
  std::optional<Windows> windows_;
  std::optional<TokenStore> eval_tokens_;
  std::optional<Windows> eval_windows_;
  std::int64_t total_steps_ = 0;
};

}  // namespace spillway
