// Machine: plain data that a Plan is made for. Measured, declared, or written by hand to ask "what if".
#pragma once

#include <cstdint>

namespace spillway {

// What `--memory` promises covers the whole process. The fixed part is everything that is not a page: code, libraries,
// stacks, tokenizer, Programs and Plans, kernels and their scratch. Both `plan` and the run take it from here, so they
// agree. A device's memory is another one, counted apart.
struct Machine {
  std::int64_t budget_bytes = 0;  // of the process
  std::int64_t fixed_bytes = 0;   // not available as pages
  std::int64_t page_bytes = 0;    // a power of two, of both memories
  std::int64_t device_bytes = 0;  // of the device's memory; 0: there is none

  std::int64_t device_pages() const { return device_bytes / page_bytes; }
  std::int64_t pages() const { return budget_bytes > fixed_bytes ? (budget_bytes - fixed_bytes) / page_bytes : 0; }
};

// The page size of the smallest budget of a step whose largest segment needs `working_set_bytes`: 2 MiB, a huge page,
// unless the whole is so small that whole pages would be mostly waste.
std::int64_t page_bytes_for(std::int64_t working_set_bytes);

}  // namespace spillway
