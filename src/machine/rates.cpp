#include "machine/rates.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway {
namespace {

std::uint64_t hash_of(std::string_view text, std::uint64_t hash) {  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return (hash ^ 0xffU) * 0x100000001b3U;
}

// What two file systems of one disk have in common.
std::string_view disk_of(std::string_view device) {
  constexpr std::string_view on = " on ";
  const std::size_t at = device.find(on);
  return at == std::string_view::npos ? device : device.substr(at + on.size());
}

// How many of the directories lie on the disk of this one; a device without a name stands alone.
double sharers(std::span<const DiskRate> disks, const DiskRate& disk) {
  if (disk.device.empty()) return 1;
  return static_cast<double>(std::count_if(disks.begin(), disks.end(), [&](const DiskRate& other) {
    return disk_of(other.device) == disk_of(disk.device);
  }));
}

}  // namespace

std::string_view name_of(RateSource source) {
  constexpr std::array<std::string_view, 4> names{"measured", "declared", "predicted", "roofline"};
  return names[static_cast<std::size_t>(source)];
}

std::string fingerprint(const MachineIdentity& identity) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  hash = hash_of(identity.processor, hash);
  hash = hash_of(fmt::format("{} {}", identity.cpus, identity.memory_bytes), hash);
  hash = hash_of(identity.kernel, hash);
  hash = hash_of(identity.libraries, hash);
  hash = hash_of(identity.build, hash);
  return fmt::format("{:016x}", hash);
}

const OpRate* MachineRates::find(const OpClass& what) const {
  const auto found = std::find_if(ops.begin(), ops.end(), [&](const OpRate& rate) {
    return rate.what.same_as(what) && (threads == 0 || rate.threads == 0 || rate.threads == threads);
  });
  return found == ops.end() ? nullptr : &*found;
}

void MachineRates::set(OpRate rate) {
  const auto found = std::find_if(ops.begin(), ops.end(), [&](const OpRate& known) {
    return known.what.same_as(rate.what) && known.threads == rate.threads;
  });
  if (found != ops.end()) {
    *found = std::move(rate);
  } else {
    ops.push_back(std::move(rate));
  }
}

MachineRates assumed_rates() {
  MachineRates rates;
  rates.bf16_flops_per_second = 4e11;
  rates.f32_flops_per_second = 2e11;
  rates.memory_bytes_per_second = {2e10};
  rates.compute_slowdown = 1.04;
  rates.op_seconds = 5e-6;
  rates.attach_seconds = 15e-6;
  rates.wake_seconds = 40e-6;
  rates.source = RateSource::predicted;
  DiskRate disk;
  disk.read_bytes_per_second = 1.5e9;
  disk.write_bytes_per_second = 1.0e9;
  disk.mixed_bytes_per_second = 1.2e9;
  disk.request_seconds = 100e-6;
  disk.source = RateSource::predicted;
  rates.disks = {disk};
  rates.link = {8e9, 8e9, 10e-6};
  return rates;
}

double roofline_seconds(const OpClass& what, const MachineRates& rates) {
  const double flops = what.dtype == DType::bf16 ? rates.bf16_flops_per_second : rates.f32_flops_per_second;
  const double computing = flops > 0 ? what.flops / flops : 0;
  const double moving = rates.memory_bandwidth() > 0 ? what.bytes / rates.memory_bandwidth() : 0;
  return rates.op_seconds + std::max(computing, moving);
}

OpEstimate op_estimate(const OpClass& what, const MachineRates& rates) {
  if (const OpRate* known = rates.find(what)) return {known->seconds, known->source};
  const double roofline = roofline_seconds(what, rates);
  const OpRate* nearest = nullptr;
  double distance = 0;
  for (const OpRate& rate : rates.ops) {
    if (rate.what.op != what.op || rate.what.dtype != what.dtype) continue;
    if (rates.threads != 0 && rate.threads != 0 && rate.threads != rates.threads) continue;
    const double from = std::fabs(std::log(roofline_seconds(rate.what, rates) / roofline));
    if (nearest == nullptr || from < distance) {
      nearest = &rate;
      distance = from;
    }
  }
  if (nearest == nullptr) return {roofline, RateSource::roofline};
  return {roofline * nearest->seconds / roofline_seconds(nearest->what, rates), RateSource::predicted};
}

std::vector<double> disk_shares(std::span<const DiskRate> disks) {
  SPILLWAY_CHECK(!disks.empty(), "{} disks", disks.size());
  std::vector<double> shares;
  for (const DiskRate& disk : disks) shares.push_back(disk.mixed_bytes_per_second / sharers(disks, disk));
  const bool known = std::all_of(shares.begin(), shares.end(), [](double share) { return share > 0; });
  if (!known) shares.assign(disks.size(), 1);
  double sum = 0;
  for (const double share : shares) sum += share;
  for (double& share : shares) share /= sum;
  return shares;
}

DiskRate together(std::span<const DiskRate> disks, std::span<const double> shares) {
  SPILLWAY_CHECK(disks.size() == shares.size() && !disks.empty(), "{} disks, {} shares", disks.size(), shares.size());
  DiskRate whole = disks.front();
  const auto rate = [&](double DiskRate::*member) {
    double slowest = -1;
    for (std::size_t i = 0; i < disks.size(); ++i) {
      if (shares[i] <= 0) continue;
      const double here = disks[i].*member / sharers(disks, disks[i]) / shares[i];
      if (slowest < 0 || here < slowest) slowest = here;
    }
    return slowest;
  };
  whole.read_bytes_per_second = rate(&DiskRate::read_bytes_per_second);
  whole.write_bytes_per_second = rate(&DiskRate::write_bytes_per_second);
  whole.mixed_bytes_per_second = rate(&DiskRate::mixed_bytes_per_second);
  double depth = 0;
  for (const DiskRate& disk : disks) {
    depth += static_cast<double>(disk.depth) / sharers(disks, disk);
    whole.request_seconds = std::max(whole.request_seconds, disk.request_seconds);
    whole.source = std::max(whole.source, disk.source);
  }
  const bool known = std::all_of(disks.begin(), disks.end(), [](const DiskRate& disk) { return disk.depth > 0; });
  whole.depth = known ? std::llround(depth) : 0;
  return whole;
}

}  // namespace spillway
