#include <cstdlib>
#include <string>

#include "base/error.h"
#include "ops/dispatch.h"

namespace spillway {
namespace {

Isa detect() {
  Isa isa = Isa::baseline;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isa = Isa::avx2;
  if (isa == Isa::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    isa = Isa::avx512;
  }
  const char* cap = std::getenv("SPILLWAY_MAX_ISA");
  if (cap == nullptr) return isa;
  for (const Isa allowed : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (cap == name_of(allowed)) return allowed < isa ? allowed : isa;
  }
  throw UserError("SPILLWAY_MAX_ISA: '{}' is not baseline, avx2 or avx512", cap);
}

bool detect_prefetch() {
  const char* const given = std::getenv("SPILLWAY_PREFETCH");
  if (given == nullptr) return __builtin_cpu_is("intel") != 0;
  const std::string_view text = given;
  if (text != "on" && text != "off") throw UserError("SPILLWAY_PREFETCH: '{}' is not on or off", text);
  return text == "on";
}

}  // namespace

bool software_prefetch() {
  static const bool prefetches = detect_prefetch();
  return prefetches;
}

Isa best_isa() {
  static const Isa isa = detect();
  return isa;
}

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::baseline: return "baseline";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
  }
  return "?";
}

}  // namespace spillway
