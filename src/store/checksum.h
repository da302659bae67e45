// XXH3, 64 bits, seed 0: the checksum of everything the store writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway {

std::uint64_t checksum_of(std::span<const std::byte> bytes);

}  // namespace spillway
