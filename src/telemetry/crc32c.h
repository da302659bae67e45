// CRC-32C (Castagnoli; RFC 3720, appendix B.4), and the form of it that TFRecord files hold.
#pragma once

#include <cstdint>
#include <string_view>

namespace spillway {

std::uint32_t crc32c(std::string_view bytes);

// Rotated and offset, so that the checksum of bytes that hold checksums is no special case.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace spillway
