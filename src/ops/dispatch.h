// Which named target of the kernel files this processor runs. The choice is made once and is part of the numeric key.
#pragma once

#include <string_view>

namespace spillway {

enum class Isa { baseline, avx2, avx512 };

// The best target the processor has, capped by SPILLWAY_MAX_ISA (baseline, avx2 or avx512) in the environment.
Isa best_isa();
std::string_view name_of(Isa isa);

// Whether the update, with moments in f32, and sums of squares ask for lines ahead of use. On Intel's processors, which
// left to themselves reach five sixths of their memory's speed there; AMD's are slower with it. No bit depends on it.
// SPILLWAY_PREFETCH=on or off in the environment says otherwise; throws UserError if that is neither.
bool software_prefetch();

}  // namespace spillway

// In kernel*.cpp define functions in namespace spillway::SPILLWAY_TARGET; in cpu.cpp declare them for all targets with
// this and call pick(&baseline::f, &avx2::f, &avx512::f).
#define SPILLWAY_DECLARE_TARGETS(declaration) \
  namespace spillway::baseline {              \
  declaration;                                \
  }                                           \
  namespace spillway::avx2 {                  \
  declaration;                                \
  }                                           \
  namespace spillway::avx512 {                \
  declaration;                                \
  }

namespace spillway {

template <typename Function>
Function pick(Function baseline, Function avx2, Function avx512) {
  switch (best_isa()) {
    case Isa::avx512: return avx512;
    case Isa::avx2: return avx2;
    case Isa::baseline: break;
  }
  return baseline;
}

}  // namespace spillway
