// Which named target of the kernel files this processor runs. The choice is made once and is part of the numeric key.
#pragma once

#include <cstdint>
#include <string_view>

namespace spillway {

enum class Isa { baseline, avx2, avx512, avx512_bf16 };

// The best target the processor has, capped by SPILLWAY_MAX_ISA (one of these names) in the environment.
Isa best_isa();
std::string_view name_of(Isa isa);

// How far ahead of use a kernel asks for lines, in elements; 0: not at all. No bit depends on it.
struct LinesAhead {
  std::int64_t update_bf16 = 0;  // with moments in f32, as the next
  std::int64_t update_f32 = 0;
  std::int64_t sum_squares = 0;
};
// Where a processor left to itself is slower: Intel's reach five sixths of their memory's speed, AMD's of family 25
// (measured on a Zen 4) fourteen fifteenths where an update has five streams. SPILLWAY_PREFETCH=off in the environment:
// nowhere; on: as for Intel's; throws UserError if it is neither.
LinesAhead lines_ahead();

}  // namespace spillway

// In kernel*.cpp define functions in namespace spillway::SPILLWAY_TARGET; in cpu.cpp declare them for all targets with
// this and call pick(SPILLWAY_TARGETS(f)).
#define SPILLWAY_DECLARE_TARGETS(declaration) \
  namespace spillway::baseline {              \
  declaration;                                \
  }                                           \
  namespace spillway::avx2 {                  \
  declaration;                                \
  }                                           \
  namespace spillway::avx512 {                \
  declaration;                                \
  }                                           \
  namespace spillway::avx512_bf16 {           \
  declaration;                                \
  }
#define SPILLWAY_TARGETS(...) \
  &baseline::__VA_ARGS__, &avx2::__VA_ARGS__, &avx512::__VA_ARGS__, &avx512_bf16::__VA_ARGS__

namespace spillway {

template <typename Function>
Function pick(Function baseline, Function avx2, Function avx512, Function avx512_bf16) {
  switch (best_isa()) {
    case Isa::avx512_bf16: return avx512_bf16;
    case Isa::avx512: return avx512;
    case Isa::avx2: return avx2;
    case Isa::baseline: break;
  }
  return baseline;
}

}  // namespace spillway
