#include "ops/grad_norm/cpu.h"

#include <algorithm>
#include <cmath>

#include "ops/float_types.h"
#include "ops/grad_norm/grad_norm.h"
#include "ops/grad_norm/kernel.h"

namespace spillway {
namespace {

// One task a block.
template <typename T>
class SumSquares final : public Kernel {
 public:
  explicit SumSquares(const KernelKey& key)
      : elements_(key.reads[0].elements()),
        block_elements_(key.attrs.integer("block_rows") * key.reads[0].cols),
        blocks_(key.writes[0].rows) {}

  std::int64_t tasks() const override { return blocks_; }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t begin = task * block_elements_;
    const std::int64_t count = std::min(block_elements_, elements_ - begin);
    args.write<double>(0)[task] = sum_(args.read<T>(0) + begin, count, ahead_);
  }

 private:
  std::int64_t elements_;
  std::int64_t block_elements_;
  std::int64_t blocks_;
  std::int64_t ahead_ = lines_ahead().sum_squares;
  double (*sum_)(const T*, std::int64_t, std::int64_t) = pick(SPILLWAY_TARGETS(block_sum_squares<T>));
};

class ClipFactor final : public Kernel {
 public:
  explicit ClipFactor(const KernelKey& key) {
    for (std::size_t i = 1; i < key.reads.size(); ++i) blocks_.push_back(key.reads[i].rows);
  }

  std::int64_t tasks() const override { return 1; }

  void run(std::int64_t, const KernelArgs& args) const override {
    double sum = 0;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const auto* sums = args.read<double>(static_cast<int>(i) + 1);
      for (std::int64_t block = 0; block < blocks_[i]; ++block) sum += sums[block];
    }
    const double norm = std::sqrt(sum);
    const double max_norm = double{args.read<float>(0)[0]};
    const double factor = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
    args.write<double>(0)[0] = norm;
    args.write<float>(1)[0] = static_cast<float>(factor);
  }

 private:
  std::vector<std::int64_t> blocks_;
};

}  // namespace

std::unique_ptr<Kernel> make_sum_squares_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype,
                         [&]<typename T>() -> std::unique_ptr<Kernel> { return std::make_unique<SumSquares<T>>(key); });
}

std::unique_ptr<Kernel> make_clip_factor_cpu(const KernelKey& key) { return std::make_unique<ClipFactor>(key); }

}  // namespace spillway
