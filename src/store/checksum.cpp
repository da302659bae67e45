#include "store/checksum.h"

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // the widest vectors the processor has; the same sums
#else
#include <xxhash.h>
#endif

#include <new>

namespace spillway {

std::uint64_t checksum_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

RunningChecksum::RunningChecksum() : state_(XXH3_createState()) {
  if (state_ == nullptr || XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_.get())) == XXH_ERROR) {
    throw std::bad_alloc();
  }
}

void RunningChecksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes.data(), bytes.size());
}

std::uint64_t RunningChecksum::value() const { return XXH3_64bits_digest(static_cast<XXH3_state_t*>(state_.get())); }

void RunningChecksum::Free::operator()(void* state) const { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }

}  // namespace spillway
