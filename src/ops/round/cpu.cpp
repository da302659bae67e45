#include "ops/round/cpu.h"

#include "ops/elementwise.h"
#include "ops/round/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_round_to_bf16_cpu(const KernelKey& key) {
  const auto round = pick(SPILLWAY_TARGETS(round_elements));
  return make_elementwise(key.writes[0], [round](const KernelArgs& args, std::int64_t begin, std::int64_t count) {
    round(args.read<float>(0) + begin, args.write<bf16_t>(0) + begin, count);
  });
}

}  // namespace spillway
