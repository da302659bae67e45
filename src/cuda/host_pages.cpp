#include "cuda/host_pages.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "cuda/status.h"

namespace spillway::cuda {
namespace {

// From one that fits in a command to the device up to a page.
constexpr std::int64_t probe_sizes[] = {4, 4096, 64 * kib, HostPages::probe_bytes};

bool moved(std::byte* to, const std::byte* from, std::int64_t bytes, cudaMemcpyKind kind, Stream stream) {
  return cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream) == cudaSuccess &&
         cudaStreamSynchronize(stream) == cudaSuccess;
}

}  // namespace

HostPages::HostPages(HostPagePool& pool, std::byte* probe, Stream stream) : pool_(pool), home_(pool.home(PageId{0})) {
  const cudaError_t error =
      cudaHostRegister(home_, static_cast<std::size_t>(pool_.pool_bytes()), cudaHostRegisterPortable);
  if (error != cudaSuccess) {
    why_not_ = cudaGetErrorString(error);
    cudaGetLastError();  // it is not one of what follows
    return;
  }
  registered_ = holds(probe, stream);
  if (registered_) return;
  why_not_ = "copies do not follow pages that move";
  cudaGetLastError();
  cudaHostUnregister(home_);
}

HostPages::~HostPages() {
  if (registered_) cudaHostUnregister(home_);
}

// Through a page that has moved. Small copies may take another way than large ones.
bool HostPages::holds(std::byte* probe, Stream stream) const {
  pool_.attach(PageId{0}, 0);
  pool_.open_home(PageId{0});
  bool all = true;
  for (const std::int64_t bytes : probe_sizes) {
    all = all && follows(std::min(bytes, pool_.page_bytes()), probe, stream);
  }
  cudaStreamSynchronize(stream);  // after a failure: nothing may still be under way there
  pool_.close_home(PageId{0});
  return all;
}

// Both ways, of so many bytes.
bool HostPages::follows(std::int64_t bytes, std::byte* probe, Stream stream) const {
  std::vector<std::byte> seen(static_cast<std::size_t>(bytes));
  const auto pattern = [](std::int64_t i, int seed) { return static_cast<std::byte>((i * 7 + seed) & 0xff); };
  std::byte* const now = pool_.address(0);
  std::byte* const home = pool_.home(PageId{0});
  for (std::int64_t i = 0; i < bytes; ++i) now[i] = pattern(i, 1);
  bool same = moved(probe, home, bytes, cudaMemcpyHostToDevice, stream) &&
              moved(seen.data(), probe, bytes, cudaMemcpyDeviceToHost, stream) &&
              std::equal(seen.begin(), seen.end(), now);
  for (std::int64_t i = 0; i < bytes; ++i) seen[static_cast<std::size_t>(i)] = pattern(i, 2);
  same = same && moved(probe, seen.data(), bytes, cudaMemcpyHostToDevice, stream) &&
         moved(home, probe, bytes, cudaMemcpyDeviceToHost, stream) && std::equal(seen.begin(), seen.end(), now);
  std::memset(now, 0, static_cast<std::size_t>(bytes));
  return same;
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
    check(cudaMemcpyAsync(to + offset, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream),
          "copying to the device");
  });
}

void HostPages::copy_down(const HostBundle& to, const std::byte* from, Stream stream) const {
  for_runs(to, [&](std::byte* host, std::int64_t offset, std::int64_t bytes) {
    check(cudaMemcpyAsync(host, from + offset, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, stream),
          "copying from the device");
  });
}

}  // namespace spillway::cuda
