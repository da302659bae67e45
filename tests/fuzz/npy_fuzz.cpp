// The header of a .npy file. UserError is the only exception allowed.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "formats/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  [[maybe_unused]] const std::span input(data, size);
  try {
    spillway::parse_npy_header(std::as_bytes(input), static_cast<std::int64_t>(size), "fuzz");
  } catch (const spillway::UserError&) {
    return 0;
  }
  return 0;
}
