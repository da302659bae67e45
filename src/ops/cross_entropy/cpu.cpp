#include "ops/cross_entropy/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/cross_entropy/kernel.h"

namespace spillway {
namespace {

constexpr int first_tile = 2;                    // reads before it: targets, scale
constexpr std::int64_t logits_per_task = 32768;  // about 50 us

// T: of dlogits.
template <typename T>
class CrossEntropyChunk final : public Kernel {
 public:
  explicit CrossEntropyChunk(const KernelKey& key)
      : rows_(key.attrs.integer("row_count")),
        row_begin_(key.attrs.integer("row_begin")),
        gradient_(key.attrs.integer("gradient") != 0) {
    for (std::size_t i = first_tile; i < key.reads.size(); ++i) {
      columns_.push_back(key.reads[i].cols);
      vocabulary_ += key.reads[i].cols;
    }
    rows_per_task_ = std::max<std::int64_t>(1, logits_per_task / vocabulary_);
  }

  std::int64_t tasks() const override { return divide_up(rows_, rows_per_task_); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t end = std::min(rows_, (task + 1) * rows_per_task_);
    for (std::int64_t row = task * rows_per_task_; row < end; ++row) {
      const std::int32_t target = args.read<std::int32_t>(0)[row_begin_ + row];
      SPILLWAY_CHECK(target < vocabulary_, "target {} of {}", target, vocabulary_);
      if (target < 0) {
        skip(row, args);
      } else {
        run_row(row, target, args);
      }
    }
  }

 private:
  const float* logits(std::size_t tile, std::int64_t row, const KernelArgs& args) const {
    return args.read<float>(first_tile + static_cast<int>(tile)) + row * columns_[tile];
  }
  T* dlogits(std::size_t tile, std::int64_t row, const KernelArgs& args) const {
    return args.write<T>(1 + static_cast<int>(tile)) + row * columns_[tile];
  }

  void skip(std::int64_t row, const KernelArgs& args) const {
    args.write<float>(0)[row] = 0.0F;
    if (!gradient_) return;
    for (std::size_t tile = 0; tile < columns_.size(); ++tile) {
      std::memset(dlogits(tile, row, args), 0, static_cast<std::size_t>(columns_[tile]) * sizeof(T));
    }
  }

  void run_row(std::int64_t row, std::int64_t target, const KernelArgs& args) const {
    float largest = -std::numeric_limits<float>::infinity();
    for (std::size_t tile = 0; tile < columns_.size(); ++tile) {
      const float of_tile = largest_(logits(tile, row, args), columns_[tile]);
      if (of_tile > largest) largest = of_tile;
    }
    double sum = 0;
    float target_logit = 0;
    std::int64_t before = 0;
    for (std::size_t tile = 0; tile < columns_.size(); ++tile) {
      const float* of_tile = logits(tile, row, args);
      sum += sum_of_exp_(of_tile, columns_[tile], largest);
      if (target >= before && target < before + columns_[tile]) target_logit = of_tile[target - before];
      before += columns_[tile];
    }
    args.write<float>(0)[row] = static_cast<float>(double{largest} - double{target_logit} + std::log(sum));
    if (gradient_) run_gradient(row, target, largest, sum, args);
  }

  void run_gradient(std::int64_t row, std::int64_t target, float largest, double sum, const KernelArgs& args) const {
    SoftmaxRow softmax{largest, static_cast<float>(1 / sum), args.read<float>(1)[0], target};
    for (std::size_t tile = 0; tile < columns_.size(); ++tile) {
      gradient_of_(dlogits(tile, row, args), logits(tile, row, args), columns_[tile], softmax);
      softmax.target -= columns_[tile];
    }
  }

  std::int64_t rows_;
  std::int64_t row_begin_;
  bool gradient_;
  std::vector<std::int64_t> columns_;  // of each tile
  std::int64_t vocabulary_ = 0;
  std::int64_t rows_per_task_ = 1;
  float (*largest_)(const float*, std::int64_t) = pick(SPILLWAY_TARGETS(largest_logit));
  double (*sum_of_exp_)(const float*, std::int64_t, float) = pick(SPILLWAY_TARGETS(sum_of_exp));
  void (*gradient_of_)(T*, const float*, std::int64_t, const SoftmaxRow&) = pick(SPILLWAY_TARGETS(logits_gradient<T>));
};

class LossSum final : public Kernel {
 public:
  explicit LossSum(const KernelKey& key) {
    for (const ValueType& losses : key.reads) rows_.push_back(losses.rows);
  }

  std::int64_t tasks() const override { return 1; }

  void run(std::int64_t, const KernelArgs& args) const override {
    double sum = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto* losses = args.read<float>(static_cast<int>(i));
      for (std::int64_t row = 0; row < rows_[i]; ++row) sum += double{losses[row]};
    }
    args.write<double>(0)[0] = sum;
  }

 private:
  std::vector<std::int64_t> rows_;
};

}  // namespace

std::unique_ptr<Kernel> make_cross_entropy_cpu(const KernelKey& key) {
  if (key.attrs.integer("dlogits_bf16") != 0) return std::make_unique<CrossEntropyChunk<bf16_t>>(key);
  return std::make_unique<CrossEntropyChunk<float>>(key);
}

std::unique_ptr<Kernel> make_loss_sum_cpu(const KernelKey& key) { return std::make_unique<LossSum>(key); }

}  // namespace spillway
