// Parts of a kernel's scratch, each 64-byte aligned, booked when the kernel is made and handed out when it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway {

class ScratchLayout {
 public:
  // Books a part; returns its offset.
  std::int64_t take(std::int64_t bytes) {
    const std::int64_t offset = bytes_;
    bytes_ += round_up(bytes, 64);
    return offset;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

template <typename T = void>
T* scratch_part(std::span<std::byte> scratch, std::int64_t offset) {
  SPILLWAY_CHECK(offset <= static_cast<std::int64_t>(scratch.size()), "{} of {}", offset, scratch.size());
  return reinterpret_cast<T*>(scratch.data() + offset);
}

}  // namespace spillway
