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
#include <vector>

namespace spillway {

// A page of a memory's pool, by number from 0. Given in full where plans are (the plan names pages, the pool owns
// them).
enum class PageId : std::int32_t;

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

  // Puts the page, with its contents, at this offset (a multiple of page_bytes) of the address range; where it was
  // before can no longer be accessed. Costs nothing to speak of when it is there already, about 15 us otherwise, and
  // twice that when another page, left behind by an earlier stay, still lies there and has to go first.
  //
  // Any threads, for different pages at different offsets: the plan orders the uses of one page and of one offset. (The
  // calls take turns inside, as the kernel's would.)
  void attach(PageId page, std::int64_t address_offset);

  // Puts the page, with its contents, back home, among those of the numbers beside its own. Costs and threads as above.
  void send_home(PageId page);

  // In the range for stays; accessible only where pages are attached.
  std::byte* address(std::int64_t offset) const { return range_.data + offset; }

  // Where the page lies now; for the stay that has the page.
  std::byte* page_data(PageId page) const { return where_[static_cast<std::size_t>(page)]; }

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

  // How often a page was moved so far.
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

  std::int64_t range_slot(const std::byte* data) const;  // -1 at home
  void move(PageId page, std::byte* to);
  void fill_gap(PageId page, std::byte* at, int protection);

  PagePoolOptions options_;
  Mapping home_;  // page_count pages, in the order of their numbers: where each lies while it is not attached elsewhere
  Mapping range_;  // address_bytes for stays, and one page that stays empty
  std::atomic<std::int64_t> moves_ = 0;
  std::mutex mutex_;                  // guards where_ and holder_ while they change
  std::vector<std::byte*> where_;     // of each page
  std::vector<std::int32_t> holder_;  // of each page-sized part of the range: its page, or -1
};

}  // namespace spillway
