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
    isa = __builtin_cpu_supports("avx512bf16") ? Isa::avx512_bf16 : Isa::avx512;
  }
  const char* cap = std::getenv("SPILLWAY_MAX_ISA");
  if (cap == nullptr) return isa;
  for (const Isa allowed : {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
    if (cap == name_of(allowed)) return allowed < isa ? allowed : isa;
  }
  throw UserError("SPILLWAY_MAX_ISA: '{}' is not baseline, avx2, avx512 or avx512_bf16", cap);
}

LinesAhead detect_lines_ahead() {
  constexpr LinesAhead intel{.update_bf16 = 256, .update_f32 = 256, .sum_squares = 1024};
  constexpr LinesAhead amd_family_25{.update_bf16 = 128, .update_f32 = 0, .sum_squares = 0};
  if (const char* const given = std::getenv("SPILLWAY_PREFETCH"); given != nullptr) {
    const std::string_view text = given;
    if (text == "on") return intel;
    if (text == "off") return {};
    throw UserError("SPILLWAY_PREFETCH: '{}' is not on or off", text);
  }
  if (__builtin_cpu_is("intel") != 0) return intel;
  return __builtin_cpu_is("amdfam19h") != 0 ? amd_family_25 : LinesAhead{};
}

}  // namespace

LinesAhead lines_ahead() {
  static const LinesAhead ahead = detect_lines_ahead();
  return ahead;
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
    case Isa::avx512_bf16: return "avx512_bf16";
  }
  return "?";
}

}  // namespace spillway
