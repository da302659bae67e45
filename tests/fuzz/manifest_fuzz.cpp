// The bytes of a manifest; what is accepted is written back to the same bytes. DeviceError is the only exception
// allowed.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  const auto* at = reinterpret_cast<const std::byte*>(data);
  const auto source = [&](std::span<std::byte> into) {
    std::memcpy(into.data(), at, into.size());
    at += into.size();
  };
  Manifest manifest;
  try {
    manifest = read_manifest(source, static_cast<std::int64_t>(size), "fuzz");
  } catch (const DeviceError&) {
    return 0;
  }
  std::vector<std::byte> back;
  write_manifest(manifest,
                 [&](std::span<const std::byte> portion) { back.insert(back.end(), portion.begin(), portion.end()); });
  SPILLWAY_CHECK(back.size() == size && std::memcmp(back.data(), data, size) == 0, "{} bytes read, {} written", size,
                 back.size());
  return 0;
}
