#include "device/page_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "base/bytes.h"
#include "base/error.h"
#include "device/memory_info.h"

namespace spillway {
namespace {

// Mappings left to what the process makes later: thread stacks, allocator arenas, libraries.
constexpr std::int64_t spare_maps = 2048;
// For a moment the kernel counts what is moved twice, and refuses it where it may not be so much.
constexpr std::int64_t most_bytes_at_once = 16 * mib;

std::size_t index_of(PageId page) { return static_cast<std::size_t>(page); }

std::int64_t count_lines(const char* path) {
  std::ifstream file(path);
  std::int64_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

void check_map_count(const PagePoolOptions& options) {
  std::ifstream file("/proc/sys/vm/max_map_count");
  std::int64_t limit = 0;
  if (!(file >> limit)) return;  // unknown: the kernel will say
  const std::int64_t pages = options.page_count + options.other_pages;
  const std::int64_t need = page_pool_maps(pages) + count_lines("/proc/self/maps") + spare_maps;
  if (need <= limit) return;
  throw UserError(
      "{} pages of {} need up to {} memory mappings and vm.max_map_count is {}: give less memory, or run 'sysctl -w "
      "vm.max_map_count={}' as root",
      pages, format_bytes(options.page_bytes), need, limit, need);
}

void check_free_memory(std::int64_t need_bytes) {
  const std::int64_t free_bytes = available_memory_bytes();
  if (need_bytes <= free_bytes) return;
  throw DoesNotFit(
      "the page pool needs {} and this machine or container has {} of memory free: give a smaller --memory",
      format_bytes(need_bytes), format_bytes(free_bytes));
}

// Makes the memory resident. Returns errno or 0.
int fault_in(std::byte* data, std::int64_t bytes) {
  for (;;) {
    if (madvise(data, static_cast<std::size_t>(bytes), MADV_POPULATE_WRITE) == 0) return 0;
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return errno;
    break;  // a kernel before 5.14
  }
  const std::int64_t step = sysconf(_SC_PAGESIZE);
  for (std::int64_t at = 0; at < bytes; at += step) *const_cast<volatile std::byte*>(data + at) = std::byte{0};
  return 0;
}

// Each thread faults in a run of pages of its own, since clearing memory is what takes the time.
int fault_in_threads(std::byte* data, const PagePoolOptions& options) {
  const std::int64_t share = divide_up(options.page_count, options.threads);
  std::vector<int> errors(static_cast<std::size_t>(options.threads), 0);
  std::vector<std::jthread> threads;
  for (std::int64_t t = 0; t * share < options.page_count; ++t) {
    const std::int64_t pages = std::min(share, options.page_count - t * share);
    const auto run = [&errors, &options, data, share, pages, t] {
      errors[static_cast<std::size_t>(t)] = fault_in(data + t * share * options.page_bytes, pages * options.page_bytes);
    };
    if (t + 1 < options.threads) {
      threads.emplace_back(run);
    } else {
      run();
    }
  }
  threads.clear();
  for (const int error : errors) {
    if (error != 0) return error;
  }
  return 0;
}

const PagePoolOptions& checked(const PagePoolOptions& options) {
  const std::int64_t page = options.page_bytes;
  SPILLWAY_CHECK(page >= 4096 && std::has_single_bit(static_cast<std::uint64_t>(page)), "page of {} bytes", page);
  SPILLWAY_CHECK(page % sysconf(_SC_PAGESIZE) == 0, "page of {} bytes", page);
  SPILLWAY_CHECK(options.page_count >= 1 && options.page_count <= INT32_MAX, "{} pages", options.page_count);
  SPILLWAY_CHECK(options.address_bytes >= 0 && options.address_bytes % page == 0, "address range of {} bytes",
                 options.address_bytes);
  SPILLWAY_CHECK(options.threads >= 1, "{} threads", options.threads);
  check_map_count(options);
  check_free_memory(options.page_count * page);
  return options;
}

}  // namespace

// What the alignment wastes is given back.
HostPagePool::Mapping::Mapping(std::int64_t size_bytes, std::int64_t alignment, int protection, int extra_flags)
    : bytes(size_bytes) {
  const std::int64_t total = size_bytes + alignment;
  void* const raw =
      mmap(nullptr, static_cast<std::size_t>(total), protection, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
  if (raw == MAP_FAILED) {
    throw DoesNotFit("reserving {} of address space failed ({}): give a smaller --memory, or raise 'ulimit -v'",
                     format_bytes(total), errno_text(errno));
  }
  auto* const begin = static_cast<std::byte*>(raw);
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin));
  const std::int64_t head = round_up(address, alignment) - address;
  const std::int64_t tail = alignment - head;
  data = begin + head;
  if (head > 0) munmap(begin, static_cast<std::size_t>(head));
  if (tail > 0) munmap(data + bytes, static_cast<std::size_t>(tail));
}

HostPagePool::Mapping::~Mapping() { munmap(data, static_cast<std::size_t>(bytes)); }

HostPagePool::HostPagePool(const PagePoolOptions& options)
    : options_(checked(options)),
      home_(pool_bytes() + options.page_bytes, options.page_bytes, PROT_READ | PROT_WRITE, 0),
      range_(options.address_bytes + options.page_bytes, options.page_bytes, PROT_NONE, MAP_NORESERVE),
      places_(options.page_count, options.address_bytes / options.page_bytes) {
  fill_gap(home_.data + pool_bytes(), options.page_bytes, PROT_NONE);
  // Advice: a kernel without huge pages refuses it and small ones do.
  if (options.page_bytes >= huge_page_bytes) {
    madvise(home_.data, static_cast<std::size_t>(pool_bytes()), options.huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  if (const int error = fault_in_threads(home_.data, options); error != 0) {
    throw DoesNotFit("the page pool of {} could not be filled ({}): give a smaller --memory",
                     format_bytes(pool_bytes()), errno_text(error));
  }
}

HostPagePool::~HostPagePool() = default;

std::byte* HostPagePool::data_at(std::int64_t place) const {
  const std::int64_t apart = place - places_.places();
  return apart < 0 ? range_.data + place * options_.page_bytes : home_.data + apart * options_.page_bytes;
}

void HostPagePool::check(std::span<const PageId> pages) const {
  for (const PageId page : pages) {
    SPILLWAY_CHECK(index_of(page) < static_cast<std::size_t>(options_.page_count), "page {} of {}", index_of(page),
                   options_.page_count);
  }
}

void HostPagePool::send_home(std::span<const PageId> pages) {
  check(pages);
  const std::lock_guard lock(mutex_);
  make(places_.send_home(pages));
}

void HostPagePool::attach(std::span<const PageId> pages, std::int64_t address_offset) {
  check(pages);
  SPILLWAY_CHECK(address_offset % options_.page_bytes == 0, "offset {} with pages of {} bytes", address_offset,
                 options_.page_bytes);
  const std::lock_guard lock(mutex_);
  make(places_.attach(pages, address_offset / options_.page_bytes));
}

void HostPagePool::make(std::span<const PageMove> moves) {
  for (const PageMove& move : moves) {
    std::byte* const from = data_at(move.from);
    std::byte* const to = data_at(move.to);
    const std::int64_t bytes = move.pages * options_.page_bytes;
    const std::int64_t most = std::max(options_.page_bytes, most_bytes_at_once);
    const std::int64_t step = is_one_mapping(from, move.pages) ? most : options_.page_bytes;
    for (std::int64_t at = 0; at < bytes; at += step) move_mapping(from + at, to + at, std::min(step, bytes - at));
  }
}

// Whether the kernel has merged the mappings of these pages, as it does with those that were neighbours when they were
// made. No mapping grows in place here, since other memory of ours follows; of two the kernel says so first.
bool HostPagePool::is_one_mapping(std::byte* data, std::int64_t pages) const {
  if (pages == 1) return true;
  const auto bytes = static_cast<std::size_t>(pages * options_.page_bytes);
  const void* const grown = mremap(data, bytes, bytes + static_cast<std::size_t>(options_.page_bytes), 0);
  SPILLWAY_CHECK(grown == MAP_FAILED, "a mapping of {} pages grew", pages);
  return errno != EFAULT;
}

// The old mapping is kept (empty) and then replaced in one call. Were it unmapped, a thread that maps memory at that
// moment, an allocator's for one, could be given the hole, which later attachments would destroy. For the same reason
// two mappings are not moved at once: before Linux 6.17 the kernel refuses to, but only after it has made a hole at
// `to`.
void HostPagePool::move_mapping(std::byte* from, std::byte* to, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  const void* const moved = mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
  if (moved != to && errno == EINVAL)
    throw DeviceError("this kernel does not move pages of memory and keep their place; that needs Linux 5.7");
  SPILLWAY_CHECK(moved == to, "moving {} bytes of pages: {}", bytes, errno_text(errno));
  fill_gap(from, bytes, PROT_NONE);
  ++moves_;
}

// Other memory where pages were.
void HostPagePool::fill_gap(std::byte* at, std::int64_t bytes, int protection) {
  const void* const plug = mmap(at, static_cast<std::size_t>(bytes), protection,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  SPILLWAY_CHECK(plug == at, "closing a gap of {} bytes: {}", bytes, errno_text(errno));
}

void HostPagePool::open_home(PageId page) {
  SPILLWAY_CHECK(page_data(page) != home(page), "page {} is at home", index_of(page));
  fill_gap(home(page), options_.page_bytes, PROT_READ | PROT_WRITE);
}

void HostPagePool::close_home(PageId page) {
  SPILLWAY_CHECK(page_data(page) != home(page), "page {} is at home", index_of(page));
  fill_gap(home(page), options_.page_bytes, PROT_NONE);
}

void HostPagePool::fill(PageId page, std::byte value) {
  check(std::span(&page, 1));
  std::memset(page_data(page), static_cast<int>(value), static_cast<std::size_t>(options_.page_bytes));
}

std::int64_t HostPagePool::huge_bytes() const {
  const auto inside = [](std::uint64_t address, const std::byte* begin, std::int64_t bytes) {
    const auto from = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(begin));
    return address >= from && address < from + static_cast<std::uint64_t>(bytes);
  };
  std::ifstream file("/proc/self/smaps");
  std::int64_t total_kib = 0;
  bool ours = false;
  for (std::string line; std::getline(file, line);) {
    unsigned long long begin = 0;
    unsigned long long end = 0;
    long long amount_kib = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
      ours = inside(begin, home_.data, pool_bytes()) || inside(begin, range_.data, options_.address_bytes);
    } else if (ours && std::sscanf(line.c_str(), "AnonHugePages: %lld kB", &amount_kib) == 1) {
      total_kib += amount_kib;
    }
  }
  return total_kib * kib;
}

}  // namespace spillway
