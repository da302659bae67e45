#include "ops/reduce/cpu.h"

#include <algorithm>

#include "base/bytes.h"
#include "ops/float_types.h"
#include "ops/reduce/kernel.h"
#include "ops/reduce/reduce.h"

namespace spillway {
namespace {

// One task a block of rows and chunk of columns. Columns are independent, so the chunk changes no bit.
constexpr std::int64_t chunk_cols = 512;

template <typename T>
class ColumnSumsKernel : public Kernel {
 public:
  explicit ColumnSumsKernel(const ValueType& dy)
      : rows_(dy.rows), cols_(dy.cols), col_chunks_(divide_up(dy.cols, chunk_cols)) {}

  std::int64_t tasks() const override { return divide_up(rows_, partial_block_rows) * col_chunks_; }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t block = task / col_chunks_;
    const std::int64_t row = block * partial_block_rows;
    const std::int64_t col = task % col_chunks_ * chunk_cols;
    sum_({.x = args.read<T>(0) + row * cols_ + col,
          .sums = args.write<float>(0) + block * cols_ + col,
          .rows = std::min(partial_block_rows, rows_ - row),
          .cols = std::min(chunk_cols, cols_ - col),
          .stride = cols_});
  }

 private:
  std::int64_t rows_, cols_, col_chunks_;
  void (*sum_)(const ColumnSums<T>&) = pick<void (*)(const ColumnSums<T>&)>(SPILLWAY_TARGETS(sum_columns));
};

class AddPartialsKernel : public Kernel {
 public:
  explicit AddPartialsKernel(const ValueType& partials) : count_(partials.rows), cols_(partials.cols) {}

  std::int64_t tasks() const override { return divide_up(cols_, chunk_cols); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t col = task * chunk_cols;
    const float* accumulator = args.read<float>(1);
    sum_({.partials = args.read<float>(0) + col,
          .accumulator = accumulator == nullptr ? nullptr : accumulator + col,
          .sums = args.write<float>(0) + col,
          .count = count_,
          .cols = std::min(chunk_cols, cols_ - col),
          .stride = cols_});
  }

 private:
  std::int64_t count_, cols_;
  void (*sum_)(const AddPartials&) = pick(SPILLWAY_TARGETS(sum_partials));
};

}  // namespace

std::unique_ptr<Kernel> make_column_sums_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<ColumnSumsKernel<T>>(key.reads[0]);
  });
}

std::unique_ptr<Kernel> make_add_partials_cpu(const KernelKey& key) {
  return std::make_unique<AddPartialsKernel>(key.reads[0]);
}

}  // namespace spillway
