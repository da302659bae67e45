// The pages of a CUDA device's memory, and an address range to which they are attached: what HostPagePool is for the
// host's. Each page is physical memory of its own, mapped where a stay wants it.
//
// A page may be mapped at several addresses at once ("virtual aliasing" in the CUDA programming guide), and only the
// one it was attached to last is used. So a page is not taken away from where it was; an address is mapped anew only
// when another page is wanted there, and a stream of plans that gives each address the same page in every step maps
// nothing after the first.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cuda/driver.h"
#include "device/page_pool.h"

namespace spillway::cuda {

class DevicePagePool {
 public:
  // Takes all memory at once. Throws UserError when the page size is not a multiple of the device's, DoesNotFit when
  // the device has too little memory free.
  DevicePagePool(const Driver& driver, int device, std::int64_t page_bytes, std::int64_t page_count,
                 std::int64_t address_bytes);
  ~DevicePagePool();
  DevicePagePool(const DevicePagePool&) = delete;
  DevicePagePool& operator=(const DevicePagePool&) = delete;

  // Puts pages at adjacent places from this offset on, a multiple of the page size. Where another page is mapped there,
  // `before_unmapping` is called first, once: it returns when nothing that was started uses the address any more. Any
  // threads, for different pages at different offsets: the plan orders the uses of one page and of one offset, and no
  // thread waits for what another waits for.
  void attach(std::int64_t address_offset, std::span<const PageId> pages,
              const std::function<void()>& before_unmapping);

  std::byte* address(std::int64_t offset) const { return base_ + offset; }
  std::int64_t page_bytes() const { return page_bytes_; }
  std::int64_t page_count() const { return page_count_; }

 private:
  void free() noexcept;
  std::uint64_t address_of(std::size_t place) const;

  const Driver& driver_;
  int device_ = 0;
  std::int64_t page_bytes_ = 0;
  std::int64_t page_count_ = 0;
  std::int64_t address_bytes_ = 0;
  std::byte* base_ = nullptr;
  std::vector<std::uint64_t> handles_;  // by page
  std::vector<std::int32_t> mapped_;    // by place in the range: the page, or -1
};

}  // namespace spillway::cuda
