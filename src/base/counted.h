// Numbers of things in sentences.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

// "1 step", "20 steps".
inline std::string counted(std::int64_t number, std::string_view word) {
  return std::to_string(number) + ' ' + std::string(word) + (number == 1 ? "" : "s");
}

}  // namespace spillway
