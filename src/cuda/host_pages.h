// The host's pages as the device's copies see them. The pool's own memory is registered with the driver, which pins it
// where it lies, so that copies need no buffers of their own and the budget counts all of it.
//
// The pool moves pages between addresses (device/page_pool.h); what the driver has pinned is the memory, and it knows
// it by the address at which it was registered. So a copy names a page by its home, wherever the page lies now. Whether
// the driver keeps to that is tried out when the pages are registered; where it does not, or refuses to register them,
// copies name the present address, and the driver takes a detour through buffers of its own, which is slower. A driver
// copies a few bytes with the processor, which would find nothing at the home of a page that has moved: those copies
// are made by a kernel. Several sizes are tried, with other memory lying at the home meanwhile, so that a copy which
// misses the page is seen and harms nothing.
#pragma once

#include <string>

#include "cuda/launch.h"
#include "executor/accelerator.h"

namespace spillway::cuda {

class HostPages {
 public:
  // Registers the pool, and tries it out with `probe`, device memory of at least probe_bytes. Nothing is attached in
  // the pool yet.
  HostPages(HostPagePool& pool, std::byte* probe, Stream stream);
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  static constexpr std::int64_t probe_bytes = accelerator_page_bytes;

  bool are_registered() const { return registered_; }
  std::string why_not() const { return why_not_; }

  // Start copies on the stream. Adjacent pages go as one.
  void copy_up(std::byte* to, const HostBundle& from, Stream stream) const;
  void copy_down(const HostBundle& to, const std::byte* from, Stream stream) const;

 private:
  bool holds(std::byte* probe, Stream stream);
  bool follows_up(std::int64_t bytes, std::byte* probe, Stream stream) const;
  bool follows_down(std::int64_t bytes, std::byte* probe, Stream stream) const;
  int start_copy(std::byte* to, const std::byte* from, std::int64_t bytes, int kind, Stream stream) const;
  template <typename Copy>
  void for_runs(const HostBundle& bundle, const Copy& copy) const;

  HostPagePool& pool_;
  std::byte* home_;
  std::byte* mapped_ = nullptr;  // home_ as kernels see it, where pages are registered
  bool registered_ = false;
  std::string why_not_;
};

}  // namespace spillway::cuda
