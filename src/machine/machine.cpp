#include "machine/machine.h"

#include "base/bytes.h"

namespace spillway {

std::int64_t page_bytes_for(std::int64_t working_set_bytes) {
  std::int64_t page_bytes = 2 * mib;
  while (page_bytes > 16 * kib && working_set_bytes < 16 * page_bytes) page_bytes /= 2;
  return page_bytes;
}

}  // namespace spillway
