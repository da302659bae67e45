#include "ops/adamw/cpu.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/bytes.h"
#include "ops/adamw/adamw.h"
#include "ops/adamw/kernel.h"
#include "ops/float_types.h"

namespace spillway {
namespace {

constexpr std::int64_t elements_per_task = 65536;
constexpr int low_write = 3;

// What the kernel takes for in place: the read is copied to the write first, unless it lies there already.
template <typename U>
U* brought(U* write, const U* read, std::int64_t begin, std::int64_t count) {
  if (write != read) std::memcpy(write + begin, read + begin, static_cast<std::size_t>(count) * sizeof(U));
  return write + begin;
}

AdamwScalars scalars_of(const KernelArgs& args, bool decay) {
  AdamwScalars scalars;
  std::memcpy(&scalars, args.read<float>(static_cast<int>(AdamwRead::scalars)), sizeof scalars);
  if (!decay) scalars.keep = 1;
  return scalars;
}

float clip_of(const KernelArgs& args) {
  const auto* const clip = args.read<float>(static_cast<int>(AdamwRead::clip));
  return clip == nullptr ? 1.0F : *clip;
}

template <typename T>
class Adamw final : public Kernel {
 public:
  explicit Adamw(const KernelKey& key)
      : elements_(key.writes[0].elements()),
        grad_begin_(key.attrs.integer("row_begin") * key.writes[0].cols),
        decay_(key.attrs.integer("decay") != 0) {}

  std::int64_t tasks() const override { return divide_up(elements_, elements_per_task); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t begin = task * elements_per_task;
    const std::int64_t count = std::min(elements_per_task, elements_ - begin);
    AdamwStreams<T> streams{
        .weight = brought(args.write<T>(0), read<T>(args, AdamwRead::weight), begin, count),
        .exp_avg = brought(args.write<float>(1), read<float>(args, AdamwRead::exp_avg), begin, count),
        .exp_avg_sq = brought(args.write<float>(2), read<float>(args, AdamwRead::exp_avg_sq), begin, count),
        .low = nullptr,
        .grad = read<T>(args, AdamwRead::grad) + grad_begin_ + begin,
        .count = count,
        .ahead = ahead_,
    };
    if constexpr (std::is_same_v<T, bf16_t>) {
      streams.low =
          brought(args.write<std::uint16_t>(low_write), read<std::uint16_t>(args, AdamwRead::low), begin, count);
    }
    chunk_(streams, scalars_of(args, decay_), clip_of(args));
  }

 private:
  template <typename U>
  static const U* read(const KernelArgs& args, AdamwRead i) {
    return args.read<U>(static_cast<int>(i));
  }

  std::int64_t elements_;
  std::int64_t grad_begin_;
  bool decay_;
  std::int64_t ahead_ = std::is_same_v<T, bf16_t> ? lines_ahead().update_bf16 : lines_ahead().update_f32;
  void (*chunk_)(const AdamwStreams<T>&, const AdamwScalars&, float) =
      pick<void (*)(const AdamwStreams<T>&, const AdamwScalars&, float)>(SPILLWAY_TARGETS(adamw_chunk<T>));
};

// Whole rows a task.
template <typename T>
class PackedAdamw final : public Kernel {
 public:
  explicit PackedAdamw(const KernelKey& key)
      : rows_(key.writes[0].rows),
        cols_(key.writes[0].cols),
        moment_bytes_(key.writes[1].cols),
        rows_per_task_(std::max<std::int64_t>(1, elements_per_task / cols_)),
        grad_begin_(key.attrs.integer("row_begin") * cols_),
        decay_(key.attrs.integer("decay") != 0) {}

  std::int64_t tasks() const override { return divide_up(rows_, rows_per_task_); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t row = task * rows_per_task_;
    const std::int64_t rows = std::min(rows_per_task_, rows_ - row);
    const auto read = [&]<typename U>(U* write, AdamwRead from, std::int64_t width) {
      return brought(write, args.read<U>(static_cast<int>(from)), row * width, rows * width);
    };
    PackedAdamwStreams<T> streams{
        .weight = read(args.write<T>(0), AdamwRead::weight, cols_),
        .exp_avg = read(args.write<std::uint8_t>(1), AdamwRead::exp_avg, moment_bytes_),
        .exp_avg_sq = read(args.write<std::uint8_t>(2), AdamwRead::exp_avg_sq, moment_bytes_),
        .low = nullptr,
        .grad = args.read<T>(static_cast<int>(AdamwRead::grad)) + grad_begin_ + row * cols_,
        .rows = rows,
        .cols = cols_,
    };
    if constexpr (std::is_same_v<T, bf16_t>) {
      streams.low = read(args.write<std::uint16_t>(low_write), AdamwRead::low, cols_);
    }
    chunk_(streams, scalars_of(args, decay_), clip_of(args));
  }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t moment_bytes_;
  std::int64_t rows_per_task_;
  std::int64_t grad_begin_;
  bool decay_;
  void (*chunk_)(const PackedAdamwStreams<T>&, const AdamwScalars&, float) =
      pick<void (*)(const PackedAdamwStreams<T>&, const AdamwScalars&, float)>(SPILLWAY_TARGETS(adamw_chunk<T>));
};

}  // namespace

std::unique_ptr<Kernel> make_adamw_cpu(const KernelKey& key) {
  const bool packed = key.writes[1].dtype == DType::u8;
  return with_float_type(key.writes[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    if (packed) return std::make_unique<PackedAdamw<T>>(key);
    return std::make_unique<Adamw<T>>(key);
  });
}

}  // namespace spillway
