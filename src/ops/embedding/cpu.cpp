#include "ops/embedding/cpu.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "ops/embedding/embedding.h"
#include "ops/embedding/kernel.h"
#include "ops/float_types.h"

namespace spillway {
namespace {

constexpr std::int64_t rows_per_task = 64;
constexpr std::int64_t columns_per_task = 128;

// Copies rows, so it is the same for all dtypes.
class EmbedRows final : public Kernel {
 public:
  explicit EmbedRows(const KernelKey& key)
      : rows_(key.writes[0].rows),
        row_bytes_(static_cast<std::size_t>(key.writes[0].cols * size_of(key.writes[0].dtype))),
        row_begin_(key.attrs.integer("row_begin")),
        row_end_(row_begin_ + key.reads[1].rows) {}

  std::int64_t tasks() const override { return divide_up(rows_, rows_per_task); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const auto* ids = args.read<std::int32_t>(0);
    const auto* tile = args.read<std::byte>(1);
    const auto* previous = args.read<std::byte>(2);
    auto* out = args.write<std::byte>(0);
    const std::int64_t end = std::min(rows_, (task + 1) * rows_per_task);
    for (std::int64_t row = task * rows_per_task; row < end; ++row) {
      const std::size_t offset = static_cast<std::size_t>(row) * row_bytes_;
      if (ids[row] >= row_begin_ && ids[row] < row_end_) {
        std::memcpy(out + offset, tile + static_cast<std::size_t>(ids[row] - row_begin_) * row_bytes_, row_bytes_);
      } else if (previous == nullptr) {
        std::memset(out + offset, 0, row_bytes_);
      } else if (previous != out) {
        std::memcpy(out + offset, previous + offset, row_bytes_);
      }
    }
  }

 private:
  std::int64_t rows_;
  std::size_t row_bytes_;
  std::int64_t row_begin_;
  std::int64_t row_end_;
};

// A task owns a range of columns and goes through all tokens: frequent ids cluster in few rows, columns are even.
template <typename T>
class EmbedGrad final : public Kernel {
 public:
  explicit EmbedGrad(const KernelKey& key)
      : tokens_(key.reads[0].rows),
        rows_(key.writes[0].rows),
        columns_(key.writes[0].cols),
        row_begin_(key.attrs.integer("row_begin")) {}

  std::int64_t tasks() const override { return divide_up(columns_, columns_per_task); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const auto* ids = args.read<std::int32_t>(0);
    const auto* dx = args.read<T>(1);
    auto* out = args.write<float>(0);
    const std::int64_t begin = task * columns_per_task;
    const std::int64_t count = std::min(columns_per_task, columns_ - begin);
    start(args.read<float>(2), out, begin, count);
    for (std::int64_t token = 0; token < tokens_; ++token) {
      const std::int64_t row = ids[token] - row_begin_;
      if (row < 0 || row >= rows_) continue;
      accumulate_(out + row * columns_ + begin, dx + token * columns_ + begin, count);
    }
  }

 private:
  void start(const float* accumulator, float* out, std::int64_t begin, std::int64_t count) const {
    if (accumulator == out) return;
    const std::size_t count_bytes = static_cast<std::size_t>(count) * sizeof(float);
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t at = row * columns_ + begin;
      if (accumulator == nullptr) {
        std::memset(out + at, 0, count_bytes);
      } else {
        std::memcpy(out + at, accumulator + at, count_bytes);
      }
    }
  }

  std::int64_t tokens_;
  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t row_begin_;
  void (*accumulate_)(float*, const T*, std::int64_t) = pick(SPILLWAY_TARGETS(accumulate_embedding<T>));
};

template <typename T>
class AddPositions final : public Kernel {
 public:
  explicit AddPositions(const KernelKey& key)
      : rows_(key.writes[0].rows), columns_(key.writes[0].cols), positions_(key.reads[1].rows) {}

  std::int64_t tasks() const override { return divide_up(rows_, rows_per_task); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const auto* x = args.read<T>(0);
    const auto* weight = args.read<T>(1);
    const auto* positions = args.read<std::int32_t>(2);
    auto* out = args.write<T>(0);
    const std::int64_t end = std::min(rows_, (task + 1) * rows_per_task);
    for (std::int64_t row = task * rows_per_task; row < end; ++row) {
      const std::int64_t at = row * columns_;
      if (positions[row] >= 0 && positions[row] < positions_) {
        add_(out + at, x + at, weight + positions[row] * columns_, columns_);
      } else if (out != x) {
        std::memcpy(out + at, x + at, static_cast<std::size_t>(columns_) * sizeof(T));
      }
    }
  }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t positions_;
  void (*add_)(T*, const T*, const T*, std::int64_t) = pick(SPILLWAY_TARGETS(add_position<T>));
};

}  // namespace

std::unique_ptr<Kernel> make_embed_rows_cpu(const KernelKey& key) { return std::make_unique<EmbedRows>(key); }

std::unique_ptr<Kernel> make_embed_grad_cpu(const KernelKey& key) {
  return with_float_type(key.reads[1].dtype,
                         [&]<typename T>() -> std::unique_ptr<Kernel> { return std::make_unique<EmbedGrad<T>>(key); });
}

std::unique_ptr<Kernel> make_add_positions_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<AddPositions<T>>(key);
  });
}

}  // namespace spillway
