#include "probe/buffer.h"

#include <sys/mman.h>

#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "device/page_pool.h"

namespace spillway {

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
  std::memset(data_, 0, static_cast<std::size_t>(bytes_));
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
