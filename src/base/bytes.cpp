#include "base/bytes.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace spillway {
namespace {

double unit_of(std::string suffix) {
  for (char& c : suffix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (suffix.empty() || suffix == "b") return 1;
  if (suffix == "k" || suffix == "kib") return static_cast<double>(kib);
  if (suffix == "m" || suffix == "mib") return static_cast<double>(mib);
  if (suffix == "g" || suffix == "gib") return static_cast<double>(gib);
  if (suffix == "t" || suffix == "tib") return static_cast<double>(tib);
  if (suffix == "kb") return 1e3;
  if (suffix == "mb") return 1e6;
  if (suffix == "gb") return 1e9;
  if (suffix == "tb") return 1e12;
  return 0;
}

}  // namespace

std::int64_t parse_bytes(std::string_view text, std::string_view key) {
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  const char* rest = end;
  while (rest != text.data() + text.size() && *rest == ' ') ++rest;
  const double unit = unit_of(std::string(rest, text.data() + text.size()));
  const double bytes = number * unit;
  if (code != std::errc() || unit == 0 || !(bytes >= 0) || bytes > 9e18) {
    throw UserError("{}: '{}' is not a size; write for example 600MiB or 1.7GiB", key, text);
  }
  return static_cast<std::int64_t>(std::llround(bytes));
}

std::string format_budget(std::int64_t bytes) { return fmt::format("{} MiB", divide_up(bytes, mib)); }

std::string format_bytes(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= tib) return fmt::format("{:.2f} TiB", value / static_cast<double>(tib));
  if (bytes >= gib) return fmt::format("{:.2f} GiB", value / static_cast<double>(gib));
  if (bytes >= mib) return fmt::format("{:.0f} MiB", value / static_cast<double>(mib));
  if (bytes >= kib) return fmt::format("{:.0f} KiB", value / static_cast<double>(kib));
  return fmt::format("{} B", bytes);
}

}  // namespace spillway
