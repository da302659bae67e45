#include "ops/gelu/cpu.h"

#include "ops/elementwise.h"
#include "ops/float_types.h"
#include "ops/gelu/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_gelu_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype, [&]<typename T>() {
    using Gelu = void (*)(const T*, T*, std::int64_t);
    const auto gelu = pick<Gelu>(SPILLWAY_TARGETS(gelu_elements));
    return make_elementwise(key.writes[0], [gelu](const KernelArgs& args, std::int64_t begin, std::int64_t count) {
      gelu(args.read<T>(0) + begin, args.write<T>(0) + begin, count);
    });
  });
}

std::unique_ptr<Kernel> make_gelu_dx_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype, [&]<typename T>() {
    using GeluDx = void (*)(const T*, const T*, T*, std::int64_t);
    const auto dx = pick<GeluDx>(SPILLWAY_TARGETS(gelu_dx_elements));
    return make_elementwise(key.writes[0], [dx](const KernelArgs& args, std::int64_t begin, std::int64_t count) {
      dx(args.read<T>(0) + begin, args.read<T>(1) + begin, args.write<T>(0) + begin, count);
    });
  });
}

}  // namespace spillway
