// The update beside a loop that only moves the same bytes: the same streams, in place, in the same tasks on the same
// threads, with no arithmetic but an xor; three of them, which ask for no lines ahead of use or for those so many
// elements ahead, of which the fastest counts. Alternated; prints GB/s (bytes read plus written) and the ratio.
//   adamw_bench [elements=33554432] [rounds=9] [passes=2]
#include <sys/mman.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "device/thread_pool.h"
#include "ops/adamw/adamw.h"
#include "ops/adamw/cpu.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

constexpr std::int64_t piece_elements = std::int64_t{1} << 20;
constexpr std::int64_t task_elements = 65536;
constexpr std::int64_t page_bytes = 2 * mib;

// In huge pages where the kernel gives them, like the pages of a run.
class Memory {
 public:
  explicit Memory(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes + page_bytes)) {
    data_ = static_cast<std::byte*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 0, bytes_);
  }
  ~Memory() { munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* take(std::int64_t bytes) {
    std::byte* const at = data_ + (-reinterpret_cast<std::intptr_t>(data_) & (page_bytes - 1)) + used_;
    used_ += bytes;
    return at;
  }

 private:
  std::size_t bytes_;
  std::byte* data_;
  std::int64_t used_ = 0;
};

struct Streams {
  std::vector<std::byte*> in_place;  // a piece's
  std::vector<int> sizes;
  std::byte* grad;
  int grad_size;
};

using Half = std::uint64_t __attribute__((vector_size(32), may_alias));  // of a line; wider ones have no AVX2 registers

Half& half_at(std::byte* at) { return *reinterpret_cast<Half*>(at); }

// Zero, which the compiler cannot know.
std::uint64_t zero() {
  std::uint64_t mask = 0;
  asm volatile("" : "+r"(mask));
  return mask;
}

#define SPILLWAY_MOVER [[gnu::target_clones("default", "avx2")]]

constexpr std::array<std::int64_t, 3> distances{0, 128, 256};  // elements that movers ask ahead, as updates do; 0: none

void prefetch_line(const std::byte* at, std::int64_t bytes) {
  if (bytes % 64 == 0) __builtin_prefetch(at + bytes);
}

// 16 elements a round: half a line of each 2-byte stream and a line of each 4-byte stream.
template <std::int64_t ahead>
SPILLWAY_MOVER void move_bf16(const Streams& piece, std::int64_t first, std::int64_t count) {
  const Half mask = Half{} + zero();
  Half seen = mask;
  std::byte* const weight = piece.in_place[0];
  std::byte* const m = piece.in_place[1];
  std::byte* const v = piece.in_place[2];
  std::byte* const low = piece.in_place[3];
  std::byte* const grad = piece.grad;
  for (std::int64_t i = first; i < first + count; i += 16) {
    if constexpr (ahead > 0) {
      const std::int64_t later = i + ahead;
      for (std::byte* const stream : {m, v}) prefetch_line(stream, 4 * later);
      for (std::byte* const stream : {weight, low, grad}) prefetch_line(stream, 2 * later);
    }
    half_at(weight + 2 * i) ^= mask;
    half_at(m + 4 * i) ^= mask;
    half_at(m + 4 * i + 32) ^= mask;
    half_at(v + 4 * i) ^= mask;
    half_at(v + 4 * i + 32) ^= mask;
    half_at(low + 2 * i) ^= mask;
    seen |= half_at(grad + 2 * i);
  }
  asm volatile("" : : "r"(seen[0] | seen[1] | seen[2] | seen[3]));
}

template <std::int64_t ahead>
SPILLWAY_MOVER void move_f32(const Streams& piece, std::int64_t first, std::int64_t count) {
  const Half mask = Half{} + zero();
  Half seen = mask;
  std::byte* const weight = piece.in_place[0];
  std::byte* const m = piece.in_place[1];
  std::byte* const v = piece.in_place[2];
  std::byte* const grad = piece.grad;
  for (std::int64_t i = first; i < first + count; i += 8) {
    if constexpr (ahead > 0) {
      for (std::byte* const stream : {weight, m, v, grad}) prefetch_line(stream, 4 * (i + ahead));
    }
    half_at(weight + 4 * i) ^= mask;
    half_at(m + 4 * i) ^= mask;
    half_at(v + 4 * i) ^= mask;
    seen |= half_at(grad + 4 * i);
  }
  asm volatile("" : : "r"(seen[0] | seen[1] | seen[2] | seen[3]));
}

template <std::int64_t ahead>
void move_task(const Streams& piece, std::int64_t first, std::int64_t count) {
  (piece.grad_size == 2 ? move_bf16<ahead> : move_f32<ahead>)(piece, first, count);
}

constexpr std::array movers{move_task<distances[0]>, move_task<distances[1]>, move_task<distances[2]>};

class Update {
 public:
  Update(DType dtype, std::int64_t elements, Memory& memory) {
    const int size = static_cast<int>(size_of(dtype));
    const bool split = dtype == DType::bf16;
    const ValueType weight{dtype, piece_elements / 1024, 1024};
    const ValueType moment{DType::f32, weight.rows, weight.cols};
    const ValueType low = split ? ValueType{DType::u16, weight.rows, weight.cols} : ValueType{DType::u16, 0, 0};
    KernelKey key{&adamw_spec,
                  {{"row_begin", std::int64_t{0}}, {"decay", std::int64_t{1}}},
                  {weight, moment, moment, low, weight, {DType::f32, 1, 1}, adamw_scalars_type},
                  {weight, moment, moment}};
    if (split) key.writes.push_back(low);
    kernel_ = make_adamw_cpu(key);
    for (std::int64_t at = 0; at < elements; at += piece_elements) {
      Streams piece;
      piece.sizes = split ? std::vector<int>{size, 4, 4, 2} : std::vector<int>{size, 4, 4};
      for (const int bytes : piece.sizes) piece.in_place.push_back(memory.take(piece_elements * bytes));
      piece.grad_size = size;
      piece.grad = memory.take(piece_elements * size);
      pieces_.push_back(piece);
      bytes_ += static_cast<double>(piece_elements) * (split ? 26 : 28);
    }
    AdamwProducts products;
    products.advance({});
    scalars_ = adamw_scalars({}, products, 1e-4);
  }

  double update_rate(ThreadPool& pool, std::int64_t passes) {
    return rate(passes, [&](Streams& piece) {
      std::vector<std::byte*> writes = piece.in_place;
      std::vector<const std::byte*> reads(writes.begin(), writes.end());
      reads.resize(4, nullptr);
      reads.insert(reads.end(), {piece.grad, reinterpret_cast<const std::byte*>(&clip_),
                                 reinterpret_cast<const std::byte*>(&scalars_)});
      pool.run(kernel_->tasks(), [&](int, std::int64_t task) { kernel_->run(task, {reads, writes, {}}); });
    });
  }

  double move_rate(ThreadPool& pool, std::int64_t passes, std::size_t mover) {
    return rate(passes, [&](Streams& piece) {
      pool.run(piece_elements / task_elements,
               [&](int, std::int64_t task) { movers[mover](piece, task * task_elements, task_elements); });
    });
  }

 private:
  template <typename Work>
  double rate(std::int64_t passes, const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      for (Streams& piece : pieces_) work(piece);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return static_cast<double>(passes) * bytes_ / seconds;
  }

  std::unique_ptr<Kernel> kernel_;
  std::vector<Streams> pieces_;
  double bytes_ = 0;
  float clip_ = 1;
  AdamwScalars scalars_{};
};

int bench(const Settings& settings) {
  const std::int64_t elements = settings.integer("elements", std::int64_t{1} << 25);
  const std::int64_t passes = settings.integer("passes", 2);
  std::printf("%-6s %8s %14s %14s %6s %8s\n", "dtype", "threads", "update GB/s", "mover GB/s", "ahead", "ratio");
  for (const DType dtype : {DType::bf16, DType::f32}) {
    Memory memory(elements * 18);
    Update update(dtype, elements, memory);
    for (int threads = 1; threads <= static_cast<int>(std::thread::hardware_concurrency()); ++threads) {
      ThreadPool pool(threads);
      std::vector<double> updates;
      std::array<std::vector<double>, movers.size()> moved, ratios;
      const auto move = [&] {
        std::array<double, movers.size()> rates{};
        for (std::size_t m = 0; m < movers.size(); ++m) rates[m] = update.move_rate(pool, passes, m);
        return rates;
      };
      for (std::int64_t round = 0; round < settings.integer("rounds", 9); ++round) {
        const auto before = move();
        updates.push_back(update.update_rate(pool, passes));
        const auto after = move();
        for (std::size_t m = 0; m < movers.size(); ++m) {
          moved[m].push_back((before[m] + after[m]) / 2);
          ratios[m].push_back(updates.back() / moved[m].back());
        }
      }
      std::size_t fastest = 0;
      for (std::size_t m = 1; m < movers.size(); ++m) {
        if (median(ratios[m]) < median(ratios[fastest])) fastest = m;
      }
      std::printf("%-6s %8d %14.1f %14.1f %6ld %8.3f\n", std::string(name_of(dtype)).c_str(), threads,
                  median(updates) / 1e9, median(moved[fastest]) / 1e9, static_cast<long>(distances[fastest]),
                  median(ratios[fastest]));
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_bench(argc, argv, spillway::bench::bench); }
