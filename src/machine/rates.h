// What a machine can do: plain numbers that predictions and the choice of a plan are made from. `spillway probe`
// measures them; a file with only a few of them, written by hand, answers for a machine that one does not have. What is
// not in the table follows from a roofline.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace spillway {

enum class RateSource : std::uint8_t { measured, declared, predicted, roofline };
std::string_view name_of(RateSource source);

// Tells machines, and builds of Spillway, apart: a table measured under another identity says nothing of this one.
struct MachineIdentity {
  std::string processor;  // model, then the features that choose kernels
  std::int64_t cpus = 0;
  std::int64_t memory_bytes = 0;
  std::string kernel;     // release of the operating system
  std::string libraries;  // those that compute, with versions
  std::string build;      // of the code that was measured

  bool operator==(const MachineIdentity&) const = default;
};
// Short text of the identity, for file names.
std::string fingerprint(const MachineIdentity& identity);

// What an op's time depends on, as text.
struct OpClass {
  std::string op;
  DType dtype = DType::f32;  // of what it computes with
  std::string shape;         // operands and attributes
  double flops = 0;
  double bytes = 0;  // of memory traffic

  bool same_as(const OpClass& other) const { return op == other.op && dtype == other.dtype && shape == other.shape; }
};

struct OpRate {
  OpClass what;
  std::int64_t threads = 0;
  double seconds = 0;
  RateSource source = RateSource::measured;
};

// One disk: what a spill directory on it carries in requests of this size at the depth the executor uses.
struct DiskRate {
  std::string directory;         // where it was measured; empty in a hand-written file: any
  std::string device;            // "ext4 on 254:0"; directories on one disk, after " on ", share it
  std::int64_t block_bytes = 0;  // 0: any
  double read_bytes_per_second = 0;
  double write_bytes_per_second = 0;
  double mixed_bytes_per_second = 0;  // both at once, half and half, together
  double request_seconds = 0;         // a lone small request
  RateSource source = RateSource::declared;
  std::int64_t depth = 0;  // requests in flight at which the rates were reached, and no fewer reach them; 0: not said
};

// The link between the host's memory and a device's: both directions at once, each at its own rate.
struct LinkRate {
  double up_bytes_per_second = 0;  // to the device
  double down_bytes_per_second = 0;
  double copy_seconds = 0;  // to start a copy
  // To map a page of the device at an address where another one was, if the device keeps pages mapped where they were;
  // 0: its pages are attached as the host's are.
  double map_seconds = 0;
};

// Parameters that a processor updates in a second, beside a device; 0: not said, then by the ops' rates.
struct UpdateRates {
  double host_parameters_per_second = 0;
  double device_parameters_per_second = 0;
};

struct MachineRates {
  MachineIdentity identity;
  std::int64_t threads = 0;          // 0: not said
  std::int64_t memory_bytes = 0;     // 0: not said
  double bf16_flops_per_second = 0;  // of products, on all threads
  double f32_flops_per_second = 0;
  std::vector<double> memory_bytes_per_second;  // reads and writes together; on 1, 2, 4, … and all threads
  double compute_slowdown = 1;                  // how much longer computing takes while the disk is busy, at least 1
  double disk_slowdown = 1;                     // how much longer the disk takes while all threads compute, at least 1
  double op_seconds = 0;                        // to start an op and share it out
  double attach_seconds = 0;                    // to put a page, or up to 2 MiB of neighbours, at an address
  double wake_seconds = 0;                      // from the end of what a lane slept for to its going on
  RateSource source = RateSource::declared;     // of the rates above
  std::int64_t device_memory_bytes = 0;         // 0: there is no device
  LinkRate link;                                // to it
  UpdateRates update;                           // of both processors
  std::vector<DiskRate> disks;
  std::vector<OpRate> ops;

  const OpRate* find(const OpClass& what) const;
  // Replaces the rate of this class at these threads, or adds it.
  void set(OpRate rate);
  double memory_bandwidth() const { return memory_bytes_per_second.empty() ? 0 : memory_bytes_per_second.back(); }
};

// A machine of which nothing is known: a small server's rates, all `predicted`. What a file leaves out is taken from
// here.
MachineRates assumed_rates();

// Seconds of flops and bytes at the machine's product rate and memory bandwidth.
double roofline_seconds(const OpClass& what, const MachineRates& rates);

// Seconds of an op: its own measured or declared rate; or that of the nearest shape of the same op, scaled by the
// rooflines of both (`predicted`); or the roofline itself.
struct OpEstimate {
  double seconds = 0;
  RateSource source = RateSource::roofline;
};
OpEstimate op_estimate(const OpClass& what, const MachineRates& rates);

// Shares of the slots that each directory's disk is to hold, adding up to 1, in proportion to the mixed rates; devices
// that appear twice count once. Equal when nothing is known of one of them.
std::vector<double> disk_shares(std::span<const DiskRate> disks);

// Several directories as one disk, spread by these shares: the slowest for its share sets the rate, and depths of
// different devices add up.
DiskRate together(std::span<const DiskRate> disks, std::span<const double> shares);

}  // namespace spillway
