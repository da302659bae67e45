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
constexpr std::int64_t most_runs = 7;

std::int64_t largest_operands(std::span<const KernelKey> keys) {
  std::int64_t most = 0;
  for (const KernelKey& key : keys) {
    for (const auto* types : {&key.reads, &key.writes}) {
      std::int64_t bytes = 0;
      for (const ValueType& type : *types) bytes += round_up(type.bytes(), 4096);
      most = std::max(most, bytes);
    }
  }
  return most;
}

// Classes of op and their kernels.
struct Wanted {
  std::vector<OpClass> classes;
  std::vector<KernelKey> keys;
};

// Those of the Program that are not known, or all of them; those that weigh most in a step first.
Wanted wanted_of(const Program& program, bool all, const MachineRates& rates) {
  const OpClasses classes = classes_of(program);
  std::vector<std::size_t> first(classes.classes.size());  // an op of each class
  for (std::size_t op = program.ops.size(); op-- > 0;) first[classes.of_op[op]] = op;
  std::vector<std::size_t> order;
  for (std::size_t c = 0; c < first.size(); ++c) {
    if (all || rates.find(classes.classes[c]) == nullptr) order.push_back(c);
  }
  const auto weight = [&](std::size_t c) {
    return static_cast<double>(classes.count[c]) * roofline_seconds(classes.classes[c], rates);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weight(a) > weight(b); });
  Wanted wanted;
  for (const std::size_t c : order) {
    wanted.classes.push_back(classes.classes[c]);
    wanted.keys.push_back(key_of(program, program.ops[first[c]]));
  }
  return wanted;
}

}  // namespace

std::int64_t measure_ops(const Program& program, KernelCache& kernels, std::int64_t page_bytes,
                         const ProbeLimits& limits, MachineRates& rates) {
  const auto start = SteadyClock::now();
  const Wanted wanted = wanted_of(program, limits.again, rates);
  const std::vector<OpClass>& classes = wanted.classes;
  const std::vector<KernelKey>& keys = wanted.keys;
  if (keys.empty()) return 0;
  const std::int64_t memory_bytes = std::min(
      std::clamp(16 * largest_operands(keys), least_memory_bytes, std::max(cold_bytes, 2 * largest_operands(keys))),
      limits.memory_bytes);
  OpTimer timer(static_cast<int>(rates.threads), memory_bytes, kernels.scratch_bytes(), page_bytes >= huge_page_bytes);
  const auto left = [&] { return limits.seconds - seconds_since(start); };
  std::vector<std::vector<double>> times(keys.size());
  const auto run = [&](std::size_t i) { times[i].push_back(timer.run_once(keys[i], kernels.get(keys[i]))); };
  const auto note = [&](std::size_t i) {
    rates.set({classes[i], rates.threads, median(times[i]), RateSource::measured});
  };
  for (std::size_t i = 0; i < keys.size() && left() > 0; ++i) {
    // The warm-up and one run of a long op may take what is left, and a bit.
    if (!timer.has_room(keys[i]) || 2 * op_estimate(classes[i], rates).seconds > 1.5 * left()) continue;
    timer.run_once(keys[i], kernels.get(keys[i]));
    run(i);
    note(i);  // others are estimated by it
  }
  // All of them again and again: what other users take for a while is taken from a run of many ops and not from all
  // runs of one. Those that weigh least come first, and none that could not be afforded as often.
  for (std::int64_t again = most_runs - 1; again > 0; --again) {
    for (std::size_t i = keys.size(); i-- > 0;) {
      if (!times[i].empty() && static_cast<double>(again) * times[i].front() < left()) run(i);
    }
  }
  std::int64_t measured = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (times[i].empty()) continue;
    note(i);
    ++measured;
  }
  return measured;
}

std::int64_t measure_device_ops(const Program& program, Accelerator& device, const ProbeLimits& limits,
                                MachineRates& rates) {
  const auto [classes, keys] = wanted_of(program, limits.again, rates);
  std::vector<KernelKey> kernels;  // parts of one tensor are classes of their own, with one kernel
  std::vector<std::size_t> kernel_of;
  for (const KernelKey& key : keys) {
    const auto known = std::find(kernels.begin(), kernels.end(), key);
    kernel_of.push_back(static_cast<std::size_t>(known - kernels.begin()));
    if (known == kernels.end()) kernels.push_back(key);
  }
  const std::vector<double> seconds = device.measured_ops(kernels, limits.memory_bytes, limits.seconds);
  std::int64_t measured = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (seconds[kernel_of[i]] <= 0) continue;
    rates.set({classes[i], rates.threads, seconds[kernel_of[i]], RateSource::measured});
    ++measured;
  }
  return measured;
}

}  // namespace spillway
