#include "probe/buffer.h"

#include <sys/mman.h>

#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "device/page_pool.h"

namespace spillway {

void fill_with_numbers(std::byte* data, std::int64_t bytes) {
  constexpr std::uint64_t varies = 0x81FF81FF81FF81FF;  // sign, the exponent's last two bits, mantissa
  constexpr std::uint64_t always = 0x3E003E003E003E00;  // from 1/8 on
  std::uint64_t state = 0x9E3779B97F4A7C15;
  for (std::int64_t at = 0; at < bytes; at += 8) {  // xorshift64
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const std::uint64_t word = (state & varies) | always;
    std::memcpy(data + at, &word, sizeof word);
  }
}

ProbeBuffer::ProbeBuffer(std::int64_t bytes, bool huge_pages) : bytes_(round_up(bytes, 4096)) {
  mapped_bytes_ = round_up(bytes_, huge_page_bytes) + huge_page_bytes;
  void* const mapped = mmap(nullptr, static_cast<std::size_t>(mapped_bytes_), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw DoesNotFit("memory: no {} for measuring this machine", format_bytes(bytes_));
  mapping_ = static_cast<std::byte*>(mapped);
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(mapping_));
  data_ = mapping_ + (round_up(address, huge_page_bytes) - address);
  madvise(data_, static_cast<std::size_t>(round_up(bytes_, huge_page_bytes)),
          huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  fill_with_numbers(data_, bytes_);
}

ProbeBuffer::~ProbeBuffer() { munmap(mapping_, static_cast<std::size_t>(mapped_bytes_)); }

std::byte* Rotation::take(std::int64_t bytes) {
  const std::int64_t room = round_up(bytes, 4096);
  SPILLWAY_CHECK(bytes <= buffer_.size_bytes(), "{} bytes of {}", bytes, buffer_.size_bytes());
  if (next_bytes_ + room > buffer_.size_bytes()) next_bytes_ = 0;
  std::byte* const data = buffer_.data() + next_bytes_;
  next_bytes_ += room;
  return data;
}

}  // namespace spillway
