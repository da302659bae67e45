#include "session/training_data.h"

#include <algorithm>
#include <cmath>

#include "session/data.h"

namespace spillway {

std::int64_t total_steps_of(const TrainOptions& options, std::int64_t windows, std::int64_t sequences_per_step) {
  if (options.max_steps >= 0) return options.max_steps;
  const double steps =
      options.num_train_epochs * static_cast<double>(windows) / static_cast<double>(sequences_per_step);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(steps)));
}

TrainingData::TrainingData(TrainingSetup& setup, const std::function<void()>& between) {
  const TrainOptions& options = setup.options;
  const auto read = [&](const std::vector<std::string>& files) {
    return read_tokens(files, options.model, setup.config.model.vocab_size, options.output_dir, setup.notes,
                       setup.choices.budget_bytes, between);
  };
  if (options.max_steps != 0) {
    tokens_ = read(options.data);
    windows_.emplace(*tokens_, setup.sequence_length,
                     Windows::Order{options.shuffle, static_cast<std::uint64_t>(options.seed)});
  }
  if (setup.evaluation) {
    eval_tokens_ = read(options.eval_data);
    eval_windows_.emplace(*eval_tokens_, setup.sequence_length, Windows::Order{});
  }
  total_steps_ =
      total_steps_of(options, windows_ ? windows_->count() : 0, setup.shape.sequences * setup.shape.micro_batches);
}

}  // namespace spillway
