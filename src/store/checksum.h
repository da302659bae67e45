// XXH3, 64 bits, seed 0: the checksum of everything the store writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace spillway {

inline constexpr std::size_t checksum_bytes = 8;

std::uint64_t checksum_of(std::span<const std::byte> bytes);

// The same of bytes that come in portions.
class RunningChecksum {
 public:
  RunningChecksum();
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  struct Free {
    void operator()(void* state) const;
  };
  std::unique_ptr<void, Free> state_;
};

}  // namespace spillway
