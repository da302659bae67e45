#include "cuda/page_pool.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway::cuda {

DevicePagePool::DevicePagePool(const Driver& driver, int device, std::int64_t page_bytes, std::int64_t page_count,
                               std::int64_t address_bytes)
    : driver_(driver),
      device_(device),
      page_bytes_(page_bytes),
      page_count_(page_count),
      address_bytes_(address_bytes),
      mapped_(static_cast<std::size_t>(address_bytes / page_bytes), -1) {
  const std::int64_t least_bytes = driver_.granularity_bytes(device_);
  if (page_bytes_ % least_bytes != 0) {
    throw UserError("page_size is {}, and this CUDA device has pages of {}; give a multiple of that",
                    format_bytes(page_bytes_), format_bytes(least_bytes));
  }
  try {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver gives addresses as numbers
    base_ = reinterpret_cast<std::byte*>(driver_.reserve(address_bytes_, page_bytes_));
    for (std::int64_t page = 0; page < page_count_; ++page) {
      const std::uint64_t handle = driver_.create(device_, page_bytes_);
      if (handle == 0) {
        throw DoesNotFit(
            "device_memory: the CUDA device had room for {} of {}; give less, or end what else uses the device",
            format_bytes(page * page_bytes_), format_bytes(page_count_ * page_bytes_));
      }
      handles_.push_back(handle);
    }
  } catch (...) {
    free();
    throw;
  }
}

DevicePagePool::~DevicePagePool() { free(); }

// After a failure of the device its calls fail too; then the process's end frees everything.
void DevicePagePool::free() noexcept {
  for (std::size_t place = 0; place < mapped_.size(); ++place) {
    if (mapped_[place] < 0) continue;
    try {
      driver_.unmap(address_of(place), page_bytes_);
    } catch (const DeviceError&) {
      return;
    }
  }
  for (const std::uint64_t handle : handles_) driver_.release(handle);
  if (base_ != nullptr) driver_.free_addresses(reinterpret_cast<std::uint64_t>(base_), address_bytes_);
}

std::uint64_t DevicePagePool::address_of(std::size_t place) const {
  return reinterpret_cast<std::uint64_t>(base_) + place * static_cast<std::uint64_t>(page_bytes_);
}

void DevicePagePool::attach(std::int64_t address_offset, std::span<const PageId> pages,
                            const std::function<void()>& before_unmapping) {
  SPILLWAY_CHECK(address_offset % page_bytes_ == 0 && address_offset >= 0 &&
                     address_offset + std::ssize(pages) * page_bytes_ <= address_bytes_,
                 "{} pages at {} of {} bytes", pages.size(), address_offset, address_bytes_);
  const auto first = static_cast<std::size_t>(address_offset / page_bytes_);
  bool waited = false;
  std::size_t begin = pages.size();  // of what is mapped here, and its end
  std::size_t end = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    std::int32_t& there = mapped_[first + i];
    const auto page = static_cast<std::int32_t>(pages[i]);
    SPILLWAY_CHECK(page >= 0 && page < page_count_, "page {} of {}", page, page_count_);
    if (there == page) continue;
    if (there >= 0) {
      if (!waited) before_unmapping();
      waited = true;
      driver_.unmap(address_of(first + i), page_bytes_);
      there = -1;
    }
    driver_.map(address_of(first + i), page_bytes_, handles_[static_cast<std::size_t>(page)]);
    there = page;
    begin = std::min(begin, i);
    end = i + 1;
  }
  // One call for the whole stretch: those within it that were mapped before are opened once more, which changes
  // nothing.
  if (begin < end)
    driver_.allow_access(address_of(first + begin), static_cast<std::int64_t>(end - begin) * page_bytes_, device_);
}

}  // namespace spillway::cuda
