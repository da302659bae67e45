#include "ops/swiglu/cpu.h"

#include "ops/elementwise.h"
#include "ops/float_types.h"
#include "ops/swiglu/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_swiglu_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype, [&]<typename T>() {
    using Swiglu = void (*)(const T*, const T*, T*, std::int64_t);
    const auto swiglu = pick<Swiglu>(SPILLWAY_TARGETS(swiglu_elements));
    return make_elementwise(key.writes[0], [swiglu](const KernelArgs& args, std::int64_t begin, std::int64_t count) {
      swiglu(args.read<T>(0) + begin, args.read<T>(1) + begin, args.write<T>(0) + begin, count);
    });
  });
}

std::unique_ptr<Kernel> make_swiglu_dx_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype, [&]<typename T>() {
    using Dx = void (*)(const SwigluDx<T>&);
    const auto dx = pick<Dx>(SPILLWAY_TARGETS(swiglu_dx_elements));
    return make_elementwise(key.writes[0], [dx](const KernelArgs& args, std::int64_t begin, std::int64_t count) {
      dx({.gate = args.read<T>(0) + begin,
          .up = args.read<T>(1) + begin,
          .dy = args.read<T>(2) + begin,
          .dgate = args.write<T>(0) + begin,
          .dup = args.write<T>(1) + begin,
          .count = count});
    });
  });
}

}  // namespace spillway
