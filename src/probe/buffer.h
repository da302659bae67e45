// Memory for operands and transfers, full of numbers, in huge pages where there are any as the pages of a run are,
// faulted in at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway {

// Numbers of either sign and of a size around a half, in bf16 as in fp32: with zeros a multiplier takes less power and
// runs faster than in training. `bytes` are a multiple of 8.
void fill_with_numbers(std::byte* data, std::int64_t bytes);

class ProbeBuffer {
 public:
  explicit ProbeBuffer(std::int64_t bytes, bool huge_pages = true);
  ~ProbeBuffer();
  ProbeBuffer(const ProbeBuffer&) = delete;
  ProbeBuffer& operator=(const ProbeBuffer&) = delete;

  std::byte* data() const { return data_; }
  std::int64_t size_bytes() const { return bytes_; }

 private:
  std::byte* mapping_ = nullptr;
  std::byte* data_ = nullptr;
  std::int64_t mapped_bytes_ = 0;
  std::int64_t bytes_ = 0;
};

// Hands out ranges of a buffer, each behind the one before, so that what it hands out was touched longest ago.
class Rotation {
 public:
  explicit Rotation(const ProbeBuffer& buffer) : buffer_(buffer) {}
  // At most the buffer's size.
  std::byte* take(std::int64_t bytes);

 private:
  const ProbeBuffer& buffer_;
  std::int64_t next_bytes_ = 0;
};

}  // namespace spillway
