// An Accelerator that is this processor: what stands behind `--device cuda` in the tests that link it. Ops go to a
// thread of its own and are done later, its pages are mapped and aliased as a CUDA device's are, and its kernels are
// the processor's; so all that is between the command line and a driver's calls runs as with a device, and the bits are
// those of the processor.
#pragma once

#include <cstdint>

namespace spillway {

struct HostAcceleratorFaults {
  std::int64_t ops_until_failure = -1;    // of all ops started; negative: none fails
  std::uint64_t delay_seed = 0;           // not 0: ops begin later at random
  bool refuses_to_record = false;         // sequences
  bool reaches_disk = false;              // by a path of its own
  std::int64_t reads_until_failure = -1;  // of those by that path; negative: none fails
  std::int64_t failing_reads = 0;         // so many after that
  double op_seconds = 0;                  // what it says that each op takes; 0: it measures none
};

// For devices that are opened from now on. Not while one is open.
void set_host_accelerator_faults(const HostAcceleratorFaults& faults);

// What the device that was closed last had done.
struct HostAcceleratorUse {
  std::int64_t ops = 0;
  std::int64_t most_ahead = 0;     // ops that were started and not done, at most
  std::int64_t replayed = 0;       // sequences that were started as one
  std::int64_t reads = 0;          // by its own path to the disk
  std::int64_t written_bytes = 0;  // the same
};
HostAcceleratorUse host_accelerator_use();

}  // namespace spillway
