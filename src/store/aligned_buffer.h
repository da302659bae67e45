// Memory that direct I/O accepts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace spillway {

// Of addresses, offsets and sizes of direct I/O.
inline constexpr std::int64_t direct_alignment = 4096;

// Zeroed bytes at a multiple of direct_alignment.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        data_(static_cast<std::byte*>(::operator new(bytes_, std::align_val_t(alignment)))) {
    std::memset(data_.get(), 0, bytes_);
  }
  std::span<std::byte> span() const { return {data_.get(), bytes_}; }

 private:
  static constexpr auto alignment = static_cast<std::size_t>(direct_alignment);
  struct Free {
    void operator()(std::byte* data) const { ::operator delete(data, std::align_val_t(alignment)); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace spillway
