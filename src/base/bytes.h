// Byte sizes as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

constexpr std::int64_t kib = std::int64_t{1} << 10;
constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t gib = std::int64_t{1} << 30;
constexpr std::int64_t tib = std::int64_t{1} << 40;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }
constexpr std::int64_t divide_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

// "600MiB", "1.7 GiB", "2GB", "4096", case-insensitive; K, M, G alone mean KiB, MiB, GiB. Throws UserError naming
// `key`.
std::int64_t parse_bytes(std::string_view text, std::string_view key);

// A budget as it must be given to be enough: whole MiB, rounded up. "1741 MiB".
std::string format_budget(std::int64_t bytes);

// "2.50 TiB", "1.70 GiB", "600 MiB", "12 B". Rounded to nearest.
std::string format_bytes(std::int64_t bytes);

}  // namespace spillway
