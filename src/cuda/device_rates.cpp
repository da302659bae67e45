// What a device can do: products, memory, copies over the link and mapping of pages.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "base/steady_clock.h"
#include "cuda/device.h"
#include "cuda/measuring.h"
#include "cuda/status.h"

namespace spillway::cuda {
namespace {

constexpr std::int64_t product_side = 4096;
constexpr std::int64_t copy_bytes = 64 * mib;
constexpr int rounds = 4;

}  // namespace

// The best of a few, after one that warms up.
double Device::seconds_of_copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  double best = 0;
  for (int round = 0; round <= rounds; ++round) {
    const auto start = SteadyClock::now();
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, compute()),
          "a copy to measure");
    check(cudaStreamSynchronize(compute()), "a copy to measure");
    const double seconds = seconds_since(start);
    if (round == 1 || (round > 1 && seconds < best)) best = seconds;
  }
  return best;
}

double Device::seconds_of_product(DType dtype) {
  const std::int64_t bytes = product_side * product_side * size_of(dtype);
  const Taken operands(3 * bytes, Taken::Where::device);
  const Taken workspace(product_workspace_bytes, Taken::Where::device);
  check(cudaMemsetAsync(operands.data(), 0x3c, static_cast<std::size_t>(3 * bytes), compute()), "a product to measure");
  const Product product(products_,
                        {.m = product_side, .n = product_side, .k = product_side, .in = dtype, .out = dtype});
  double best = 0;
  for (int round = 0; round <= rounds; ++round) {
    const auto start = SteadyClock::now();
    product.start(compute(), {.a = operands.data(),
                              .b = operands.data() + bytes,
                              .c = operands.data() + 2 * bytes,
                              .workspace = workspace.data()});
    check(cudaStreamSynchronize(compute()), "a product to measure");
    const double seconds = seconds_since(start);
    if (round == 1 || (round > 1 && seconds < best)) best = seconds;
  }
  return best;
}

// What each direction carries while the other is busy too, as in a step: both may be slower so than alone. The best of
// a few, after one that warms up. The first half of each memory is for copies up, the second for copies down.
LinkRate Device::link_both_ways(std::byte* here, std::byte* there) {
  constexpr int copies = 4;  // so that the end of the slower direction, which is alone by then, counts little
  const auto bytes = static_cast<std::size_t>(copy_bytes);
  const Stream up = stream(DeviceStream::up);
  const Stream down = stream(DeviceStream::down);
  const Moment up_begin, up_end, down_begin, down_end;
  LinkRate best;
  for (int round = 0; round <= rounds; ++round) {
    up_begin.note(up);
    down_begin.note(down);
    for (int copy = 0; copy < copies; ++copy) {
      check(cudaMemcpyAsync(there, here, bytes, cudaMemcpyDefault, up), "a copy to measure");
      check(cudaMemcpyAsync(here + bytes, there + bytes, bytes, cudaMemcpyDefault, down), "a copy to measure");
    }
    up_end.note(up);
    down_end.note(down);
    const auto moved = static_cast<double>(copies * copy_bytes);
    const double up_rate = moved / up_begin.seconds_until(up_end);
    const double down_rate = moved / down_begin.seconds_until(down_end);
    if (round == 0) continue;
    best.up_bytes_per_second = std::max(best.up_bytes_per_second, up_rate);
    best.down_bytes_per_second = std::max(best.down_bytes_per_second, down_rate);
  }
  return best;
}

// Of one page, by the pool's own way.
double Device::seconds_of_mapping() {
  constexpr std::int64_t turns = 32;
  const std::int64_t page_bytes = driver_.granularity_bytes(facts_.index);
  DevicePagePool pool(driver_, facts_.index, page_bytes, 2, page_bytes);
  const auto map = [&](std::int64_t turn) {
    const auto page = static_cast<PageId>(turn % 2);
    pool.attach(0, std::span(&page, 1), [] {});
  };
  map(1);
  const auto start = SteadyClock::now();
  for (std::int64_t turn = 0; turn < turns; ++turn) map(turn);
  return seconds_since(start) / static_cast<double>(turns);
}

MachineRates Device::measured(MachineRates rates) {
  make_current();
  const double flops = 2.0 * static_cast<double>(product_side * product_side * product_side);
  rates.bf16_flops_per_second = flops / seconds_of_product(DType::bf16);
  rates.f32_flops_per_second = flops / seconds_of_product(DType::f32);
  const Taken here(2 * copy_bytes, Taken::Where::host);
  const Taken there(2 * copy_bytes, Taken::Where::device);
  const auto bytes = static_cast<double>(copy_bytes);
  link_ = link_both_ways(here.data(), there.data());
  link_.copy_seconds = seconds_of_copy(there.data(), here.data(), 4096);
  link_.map_seconds = seconds_of_mapping();
  rates.memory_bytes_per_second = {2 * bytes / seconds_of_copy(there.data() + copy_bytes, there.data(), copy_bytes)};
  rates.link = link_;
  rates.op_seconds = 5e-6;
  rates.source = RateSource::measured;
  rates.ops.clear();  // they were the host's
  return rates;
}

}  // namespace spillway::cuda
