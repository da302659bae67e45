#include "ops/add/cpu.h"

#include "ops/add/kernel.h"
#include "ops/elementwise.h"
#include "ops/float_types.h"

namespace spillway {

std::unique_ptr<Kernel> make_add_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype, [&]<typename T>() {
    using Add = void (*)(const T*, const T*, T*, std::int64_t);
    const auto add = pick<Add>(SPILLWAY_TARGETS(add_elements));
    return make_elementwise(key.writes[0], [add](const KernelArgs& args, std::int64_t begin, std::int64_t count) {
      add(args.read<T>(0) + begin, args.read<T>(1) + begin, args.write<T>(0) + begin, count);
    });
  });
}

}  // namespace spillway
