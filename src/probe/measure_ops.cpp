#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "base/steady_clock.h"
#include "device/page_pool.h"
#include "probe/op_timer.h"
#include "probe/probe.h"
#include "sim/op_rates.h"

namespace spillway {
namespace {

constexpr std::int64_t least_memory_bytes = 8 * mib;
constexpr std::int64_t cold_bytes = 256 * mib;  // beyond the caches of most processors, both halves

std::int64_t largest_operands(const Program& program, std::span<const std::size_t> ops) {
  std::int64_t most = 0;
  for (const std::size_t op : ops) {
    const KernelKey key = key_of(program, program.ops[op]);
    for (const auto* types : {&key.reads, &key.writes}) {
      std::int64_t bytes = 0;
      for (const ValueType& type : *types) bytes += round_up(type.bytes(), 4096);
      most = std::max(most, bytes);
    }
  }
  return most;
}

}  // namespace

std::int64_t measure_ops(const Program& program, KernelCache& kernels, std::int64_t page_bytes,
                         const ProbeLimits& limits, MachineRates& rates) {
  const auto start = SteadyClock::now();
  const OpClasses classes = classes_of(program);
  std::vector<std::size_t> first(classes.classes.size());  // an op of each class
  for (std::size_t op = program.ops.size(); op-- > 0;) first[classes.of_op[op]] = op;
  std::vector<std::size_t> wanted;
  for (std::size_t c = 0; c < first.size(); ++c) {
    if (limits.again || rates.find(classes.classes[c]) == nullptr) wanted.push_back(c);
  }
  if (wanted.empty()) return 0;
  const auto weight = [&](std::size_t c) {
    return static_cast<double>(classes.count[c]) * roofline_seconds(classes.classes[c], rates);
  };
  std::stable_sort(wanted.begin(), wanted.end(), [&](std::size_t a, std::size_t b) { return weight(a) > weight(b); });
  std::vector<std::size_t> ops;
  for (const std::size_t c : wanted) ops.push_back(first[c]);
  const std::int64_t memory_bytes = std::min(std::clamp(16 * largest_operands(program, ops), least_memory_bytes,
                                                        std::max(cold_bytes, 2 * largest_operands(program, ops))),
                                             limits.memory_bytes);
  OpTimer timer(static_cast<int>(rates.threads), memory_bytes, kernels.scratch_bytes(), page_bytes >= huge_page_bytes);
  std::int64_t measured = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double left = limits.seconds - seconds_since(start);
    if (left <= 0) break;
    const KernelKey key = key_of(program, program.ops[ops[i]]);
    const OpClass& what = classes.classes[wanted[i]];
    // The warm-up and one run of a long op may take what is left, and a bit.
    if (!timer.has_room(key) || 2 * op_estimate(what, rates).seconds > 1.5 * left) continue;
    const double share = std::max(0.03 * limits.seconds, left / static_cast<double>(wanted.size() - i));
    rates.set({what, rates.threads, timer.seconds(key, kernels.get(key), std::min(left, share)), RateSource::measured});
    ++measured;
  }
  return measured;
}

}  // namespace spillway
