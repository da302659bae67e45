// The pages of host memory: one reservation, faulted in once, where pages lie in the order of their numbers, and an
// address range to which they are attached.
//
// A stay has pages named by the plan. Where their numbers follow each other they are flat at home; or else they are
// attached at an address that the bundle has for the whole run, which moves the physical pages there (mremap). So
// kernels see flat tensors and no byte is copied. Nothing is allocated or given back until the end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/page_places.h"

namespace spillway {

// What a kernel gives as one page where it is asked to, on x86-64. Pages of a pool are huge from this size on.
constexpr std::int64_t huge_page_bytes = std::int64_t{2} << 20;

struct PagePoolOptions {
  std::int64_t page_bytes = huge_page_bytes;  // a power of two, at least 4096
  std::int64_t page_count = 0;
  std::int64_t address_bytes = 0;  // of the range for stays, a multiple of page_bytes
  int threads = 1;                 // that fault the memory in
  bool huge_pages = true;          // ask for them where pages are large enough
  std::int64_t other_pages = 0;    // of pools that this process has or makes beside it: they need mappings too
};

// Mappings that a pool of this many pages needs at worst: each page alone with a gap behind it, in two ranges.
constexpr std::int64_t page_pool_maps(std::int64_t page_count) { return 2 * page_count + 2; }

class HostPagePool {
 public:
  // Reserves everything; all memory is resident and zero afterwards. Throws DoesNotFit when the machine or its
  // container has too little free memory, UserError when all pages would exceed vm.max_map_count.
  explicit HostPagePool(const PagePoolOptions& options);
  ~HostPagePool();
  HostPagePool(const HostPagePool&) = delete;
  HostPagePool& operator=(const HostPagePool&) = delete;

  // Puts pages, with their contents, next to each other from this offset (a multiple of page_bytes) of the address
  // range on; where they were before can no longer be accessed. Costs nothing to speak of for those that are there
  // already, else about 15 us for each 2 MiB that move together (base/page_places.h), and as much for other pages that
  // earlier stays left there and that have to go first.
  //
  // Any threads, for different pages at different offsets: the plan orders the uses of one page and of one offset. (The
  // calls take turns inside.)
  void attach(std::span<const PageId> pages, std::int64_t address_offset);
  void attach(PageId page, std::int64_t address_offset) { attach(std::span(&page, 1), address_offset); }

  // Puts pages, with their contents, back home, among those of the numbers beside their own. Costs and threads as
  // above.
  void send_home(std::span<const PageId> pages);

  // In the range for stays; accessible only where pages are attached.
  std::byte* address(std::int64_t offset) const { return range_.data + offset; }

  // Where the page lies now; for the stay that has the page.
  std::byte* page_data(PageId page) const { return data_at(places_.place_of(page)); }

  // Where the page lay first. Its memory is known by this address to whoever pinned it, wherever it lies now; the
  // processor may only read and write there while the page is not attached elsewhere.
  std::byte* home(PageId page) const { return home_.data + static_cast<std::int64_t>(page) * options_.page_bytes; }

  // For trying out whether who pinned a page reaches it by its home: between these two, what lies at the home of a page
  // that is attached elsewhere is other memory, zero at first, where an access of the processor's misses the page
  // instead of ending the process. Nothing is attached meanwhile.
  void open_home(PageId page);
  void close_home(PageId page);

  // Sets every byte of the page: poison, or zeros.
  void fill(PageId page, std::byte value);

  std::int64_t page_bytes() const { return options_.page_bytes; }
  std::int64_t page_count() const { return options_.page_count; }
  std::int64_t address_bytes() const { return options_.address_bytes; }
  std::int64_t pool_bytes() const { return options_.page_bytes * options_.page_count; }

  // How often pages were moved so far; those that moved together count once.
  std::int64_t moves() const { return moves_.load(); }

  // How much of the pool is in huge pages, from /proc/self/smaps. Slow (it walks all mappings): for a report.
  std::int64_t huge_bytes() const;

 private:
  // Address space that belongs to us until the end, whatever lies in it.
  struct Mapping {
    Mapping(std::int64_t size_bytes, std::int64_t alignment, int protection, int extra_flags);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };

  std::byte* data_at(std::int64_t place) const;
  void check(std::span<const PageId> pages) const;
  void make(std::span<const PageMove> moves);
  bool is_one_mapping(std::byte* data, std::int64_t pages) const;
  void move_mapping(std::byte* from, std::byte* to, std::int64_t bytes);
  static void fill_gap(std::byte* at, std::int64_t bytes, int protection);

  PagePoolOptions options_;
  // The pages in the order of their numbers, where each lies while it is not attached elsewhere; and address_bytes for
  // stays. Behind each of the two is a page that stays empty.
  Mapping home_;
  Mapping range_;
  std::atomic<std::int64_t> moves_ = 0;
  std::mutex mutex_;  // guards places_ while they change
  PagePlaces places_;
};

}  // namespace spillway
