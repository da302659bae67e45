#include "ops/kv_cache/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "ops/float_types.h"
#include "ops/kv_cache/kernel.h"
#include "ops/kv_cache/kv_cache.h"

namespace spillway {
namespace {

constexpr std::int64_t cache_rows_per_task = 256;
constexpr std::int64_t lanes = 16;

// A task owns some rows of the cache and takes the fresh rows that belong there.
class KvAppend final : public Kernel {
 public:
  explicit KvAppend(const KernelKey& key)
      : cache_rows_(key.reads[0].rows),
        fresh_rows_(key.reads[1].rows),
        row_bytes_(key.reads[0].cols * size_of(key.reads[0].dtype)) {}

  std::int64_t tasks() const override { return divide_up(cache_rows_, cache_rows_per_task); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const auto* cache = args.read<std::byte>(0);
    const auto* fresh = args.read<std::byte>(1);
    const auto* positions = args.read<std::int32_t>(2);
    auto* out = args.write<std::byte>(0);
    const std::int64_t begin = task * cache_rows_per_task;
    const std::int64_t end = std::min(cache_rows_, begin + cache_rows_per_task);
    if (cache != out) {
      std::memcpy(out + begin * row_bytes_, cache + begin * row_bytes_,
                  static_cast<std::size_t>((end - begin) * row_bytes_));
    }
    for (std::int64_t row = 0; row < fresh_rows_; ++row) {
      if (positions[row] < begin || positions[row] >= end) continue;
      std::memcpy(out + positions[row] * row_bytes_, fresh + row * row_bytes_, static_cast<std::size_t>(row_bytes_));
    }
  }

 private:
  std::int64_t cache_rows_;
  std::int64_t fresh_rows_;
  std::int64_t row_bytes_;
};

// A task is one row and one kv head, with its query heads in ascending order.
template <typename T>
class KvAttention final : public Kernel {
 public:
  explicit KvAttention(const KernelKey& key)
      : rows_(key.reads[0].rows),
        cache_rows_(key.reads[1].rows),
        heads_(key.attrs.integer("heads")),
        kv_heads_(key.attrs.integer("kv_heads")),
        head_dim_(key.attrs.integer("head_dim")),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim_)))) {}

  std::int64_t tasks() const override { return rows_ * kv_heads_; }

  std::int64_t scratch_bytes() const override {
    return (round_up(cache_rows_, lanes) + 2 * round_up(head_dim_, lanes)) * size_of(DType::f32);
  }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t row = task / kv_heads_;
    const std::int64_t kv_head = task % kv_heads_;
    const std::int64_t group = heads_ / kv_heads_;
    const std::int64_t position = args.read<std::int32_t>(3)[row];
    SPILLWAY_CHECK(position < cache_rows_, "position {} of {}", position, cache_rows_);
    const std::int64_t at = row * heads_ * head_dim_ + kv_head * group * head_dim_;
    if (position < 0) {
      std::memset(args.write<T>(0) + at, 0, static_cast<std::size_t>(group * head_dim_) * sizeof(T));
      return;
    }
    auto* scratch = reinterpret_cast<float*>(args.scratch.data());
    CachedHead<T> head{
        .q = args.read<T>(0) + at,
        .keys = args.read<T>(1) + kv_head * head_dim_,
        .values = args.read<T>(2) + kv_head * head_dim_,
        .row_stride = kv_heads_ * head_dim_,
        .rows = position + 1,
        .head_dim = head_dim_,
        .scale = scale_,
        .scores = scratch,
        .query = scratch + round_up(cache_rows_, lanes),
        .average = scratch + round_up(cache_rows_, lanes) + round_up(head_dim_, lanes),
    };
    for (std::int64_t i = 0; i < group; ++i, head.q += head_dim_) {
      attend_(args.write<T>(0) + at + i * head_dim_, head);
    }
  }

 private:
  std::int64_t rows_;
  std::int64_t cache_rows_;
  std::int64_t heads_;
  std::int64_t kv_heads_;
  std::int64_t head_dim_;
  float scale_;
  void (*attend_)(T*, const CachedHead<T>&) = pick(SPILLWAY_TARGETS(attend_cached<T>));
};

}  // namespace

std::unique_ptr<Kernel> make_kv_append_cpu(const KernelKey& key) { return std::make_unique<KvAppend>(key); }

std::unique_ptr<Kernel> make_kv_attention_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<KvAttention<T>>(key);
  });
}

}  // namespace spillway
