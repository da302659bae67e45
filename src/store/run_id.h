// The name of a run: 128 random bits. Every slot file of a run carries it, so that files of different runs never mix.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

struct RunId {
  std::array<std::uint8_t, 16> bytes{};

  // From the kernel's random source; DeviceError when it has none.
  static RunId random();
  // 32 lower-case hexadecimal digits, as in file names; nothing for any other text.
  static std::optional<RunId> parse(std::string_view text);
  std::string text() const;
  auto operator<=>(const RunId&) const = default;
};

}  // namespace spillway
