#include "cuda/host_pages.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "cuda/status.h"

namespace spillway::cuda {
namespace {

// A driver makes small copies with the processor, which finds nothing at the home of a page that has moved; so those
// are made by a kernel, which reads and writes what is pinned as its own memory.
constexpr std::int64_t least_driver_bytes = 256 * kib;

// On both sides of that, from a number up to a page.
constexpr std::int64_t probe_sizes[] = {
    4, 4099, 64 * kib, least_driver_bytes - 1, least_driver_bytes, HostPages::probe_bytes};

bool moved(std::byte* to, const std::byte* from, std::int64_t bytes, cudaMemcpyKind kind, Stream stream) {
  return cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream) == cudaSuccess &&
         cudaStreamSynchronize(stream) == cudaSuccess;
}

}  // namespace

HostPages::HostPages(HostPagePool& pool, std::byte* probe, Stream stream) : pool_(pool), home_(pool.home(PageId{0})) {
  const cudaError_t error = cudaHostRegister(home_, static_cast<std::size_t>(pool_.pool_bytes()),
                                             cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (error != cudaSuccess) {
    why_not_ = cudaGetErrorString(error);
    cudaGetLastError();  // it is not one of what follows
    return;
  }
  registered_ = holds(probe, stream);
  if (registered_) return;
  mapped_ = nullptr;
  cudaGetLastError();
  cudaHostUnregister(home_);
}

HostPages::~HostPages() {
  if (registered_) cudaHostUnregister(home_);
}

// Through a page that has moved.
bool HostPages::holds(std::byte* probe, Stream stream) {
  void* mapped = nullptr;
  if (cudaHostGetDevicePointer(&mapped, home_, 0) != cudaSuccess) {
    why_not_ = "the device does not reach pinned memory";
    return false;
  }
  mapped_ = static_cast<std::byte*>(mapped);
  pool_.attach(PageId{0}, 0);
  pool_.open_home(PageId{0});
  for (const std::int64_t size : probe_sizes) {
    const std::int64_t bytes = std::min(size, pool_.page_bytes());
    const std::string_view way = follows_up(bytes, probe, stream) ? "down" : "up";
    if (way == "down" && follows_down(bytes, probe, stream)) continue;
    why_not_ = fmt::format("copies {} of {} bytes do not follow pages that move", way, bytes);
    break;
  }
  cudaStreamSynchronize(stream);  // after a failure: nothing may still be under way there
  pool_.close_home(PageId{0});
  return why_not_.empty();
}

namespace {

std::vector<std::byte> pattern(std::int64_t bytes, std::int64_t seed) {
  std::vector<std::byte> made;
  for (std::int64_t i = 0; i < bytes; ++i) made.push_back(static_cast<std::byte>((i * 7 + seed) & 0xff));
  return made;
}

}  // namespace

bool HostPages::follows_up(std::int64_t bytes, std::byte* probe, Stream stream) const {
  const std::vector<std::byte> sent = pattern(bytes, bytes % 251 + 1);
  std::copy(sent.begin(), sent.end(), pool_.address(0));
  std::vector<std::byte> seen(sent.size());
  return start_copy(probe, pool_.home(PageId{0}), bytes, cudaMemcpyHostToDevice, stream) == cudaSuccess &&
         moved(seen.data(), probe, bytes, cudaMemcpyDeviceToHost, stream) && seen == sent;
}

bool HostPages::follows_down(std::int64_t bytes, std::byte* probe, Stream stream) const {
  const std::vector<std::byte> sent = pattern(bytes, bytes % 251 + 2);
  return moved(probe, sent.data(), bytes, cudaMemcpyHostToDevice, stream) &&
         start_copy(pool_.home(PageId{0}), probe, bytes, cudaMemcpyDeviceToHost, stream) == cudaSuccess &&
         cudaStreamSynchronize(stream) == cudaSuccess && std::equal(sent.begin(), sent.end(), pool_.address(0));
}

// Of whole pages, or of the front of one. Returns a cudaError_t.
int HostPages::start_copy(std::byte* to, const std::byte* from, std::int64_t bytes, int kind, Stream stream) const {
  const bool is_up = kind == cudaMemcpyHostToDevice;
  if (mapped_ == nullptr || bytes >= least_driver_bytes) {
    return cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), static_cast<cudaMemcpyKind>(kind), stream);
  }
  if (is_up) {
    from = mapped_ + (from - home_);
  } else {
    to = mapped_ + (to - home_);
  }
  constexpr std::int64_t row_bytes = 4096;
  const std::int64_t rows = bytes / row_bytes;
  const std::int64_t left_bytes = bytes % row_bytes;
  const auto copy = [&](std::int64_t at, std::int64_t count, std::int64_t width) {
    if (count > 0 && width > 0)
      copy_rows(stream, {.from = from + at,
                         .to = to + at,
                         .rows = count,
                         .row_bytes = width,
                         .row_begin = 0,
                         .from_row_bytes = width,
                         .skip_bytes = 0});
  };
  copy(0, rows, row_bytes);
  copy(rows * row_bytes, 1, left_bytes);
  return cudaGetLastError();
}

// Calls copy(address, offset, bytes) for each stretch of the bundle that lies in one piece.
template <typename Copy>
void HostPages::for_runs(const HostBundle& bundle, const Copy& copy) const {
  if (!registered_) {
    copy(bundle.data, 0, bundle.bytes);
    return;
  }
  const std::int64_t page_bytes = pool_.page_bytes();
  for (std::size_t begin = 0; begin < bundle.pages.size();) {
    std::size_t end = begin + 1;
    while (end < bundle.pages.size() &&
           pool_.home(bundle.pages[end]) == pool_.home(bundle.pages[end - 1]) + page_bytes) {
      ++end;
    }
    const std::int64_t from = static_cast<std::int64_t>(begin) * page_bytes;
    const std::int64_t to = std::min(bundle.bytes, static_cast<std::int64_t>(end) * page_bytes);
    copy(pool_.home(bundle.pages[begin]), from, to - from);
    begin = end;
  }
}

void HostPages::copy_up(std::byte* to, const HostBundle& from, Stream stream) const {
  for_runs(from, [&](const std::byte* host, std::int64_t offset, std::int64_t bytes) {
    check(start_copy(to + offset, host, bytes, cudaMemcpyHostToDevice, stream), "copying to the device");
  });
}

void HostPages::copy_down(const HostBundle& to, const std::byte* from, Stream stream) const {
  for_runs(to, [&](std::byte* host, std::int64_t offset, std::int64_t bytes) {
    check(start_copy(host, from + offset, bytes, cudaMemcpyDeviceToHost, stream), "copying from the device");
  });
}

}  // namespace spillway::cuda
