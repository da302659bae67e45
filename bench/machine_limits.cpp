#include "machine_limits.h"

#include <fcntl.h>
#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/steady_clock.h"
#include "executor/kernel_table.h"
#include "ops/linear/cpu.h"
#include "ops/linear/linear.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/register_tile.h"
#include "probe/buffer.h"
#include "store/io.h"

namespace spillway::bench {
namespace {

template <typename Work>
double on_threads(int threads, const Work& work) {  // seconds
  const auto start = SteadyClock::now();
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& other : others) other.join();
  return seconds_since(start);
}

[[gnu::target("avx512f,avx512bf16")]] double dot_products(std::int64_t rounds) {
  __m512 sums[12];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512bh a = {};
  __m512bh b = {};
  asm volatile("" : "+v"(a), "+v"(b));
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, a, b);
  }
  for (const __m512& sum : sums) asm volatile("" : : "v"(sum));
  return 12.0 * 64 * static_cast<double>(rounds);
}

// In few registers: beside another thread on its core a processor has few to spare (techniques/register-tiles.md).
[[gnu::target("amx-tile,amx-bf16")]] double tile_products(std::int64_t rounds) {
  const AmxTiles registers(AmxTiles::Product{});
  for (std::int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 2, 3);
    _tile_dpbf16ps(1, 2, 3);
  }
  return 2.0 * 16 * 16 * 64 * static_cast<double>(rounds);
}

[[gnu::target("avx2,fma")]] double multiply_adds(std::int64_t rounds) {
  __m256 sums[12];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  __m256 a = _mm256_set1_ps(1e-3F);
  asm volatile("" : "+x"(a));
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(a, a, sum);
  }
  for (const __m256& sum : sums) asm volatile("" : : "x"(sum));
  return 12.0 * 16 * static_cast<double>(rounds);
}

[[gnu::target("avx512f")]] double wide_multiply_adds(std::int64_t rounds) {
  __m512 sums[12];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512 a = _mm512_set1_ps(1e-3F);
  asm volatile("" : "+v"(a));
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, a, sum);
  }
  for (const __m512& sum : sums) asm volatile("" : : "v"(sum));
  return 12.0 * 32 * static_cast<double>(rounds);
}

double rate_of(double (*loop)(std::int64_t rounds), int threads, std::int64_t rounds = 10'000'000) {
  std::vector<double> flops(static_cast<std::size_t>(threads));
  const double seconds = on_threads(threads, [&](int t) { flops[static_cast<std::size_t>(t)] = loop(rounds); });
  double total = 0;
  for (const double part : flops) total += part;
  return total / seconds;
}

// Bytes [begin, end), whole lines. The mask is zero, which the compiler cannot know.
[[gnu::target("avx2")]] void move_lines(Stream stream, std::int64_t begin, std::int64_t end) {
  __m256i mask = _mm256_setzero_si256();
  asm volatile("" : "+x"(mask));
  __m256i seen = mask;
  for (std::int64_t at = begin; at < end; at += 32) {
    auto* const line = reinterpret_cast<__m256i*>(stream.data + at);
    const __m256i old = stream.read ? _mm256_loadu_si256(line) : mask;
    if (stream.written) {
      _mm256_storeu_si256(line, _mm256_or_si256(old, mask));
    } else {
      seen = _mm256_or_si256(seen, old);
    }
  }
  asm volatile("" : : "x"(seen));
}

}  // namespace

double matrix_rate_f32(int threads) {
  return rate_of(__builtin_cpu_supports("avx512f") != 0 ? &wide_multiply_adds : &multiply_adds, threads);
}

double matrix_rate_bf16(int threads) {
  if (matmul_has(Bf16Product::amx)) return rate_of(&tile_products, threads, 2'000'000);
  const double widened = matrix_rate_f32(threads);
  return __builtin_cpu_supports("avx512bf16") == 0 ? widened : std::max(widened, rate_of(&dot_products, threads));
}

double product_rate_bf16(int threads) {
  const KernelKey key{&linear_spec,
                      {{"weight_out_in", std::int64_t{1}}},
                      {{DType::bf16, 1024, 768}, {DType::bf16, 3072, 768}, {DType::f32, 0, 0}},
                      {{DType::bf16, 1024, 3072}}};
  const std::unique_ptr<Kernel> kernel = make_linear_cpu(key);
  const AlignedBytes x(key.reads[0].bytes());
  const AlignedBytes w(key.reads[1].bytes());
  const AlignedBytes y(key.writes[0].bytes());
  const AlignedBytes scratch(round_up(kernel->scratch_bytes(), 4096) * threads);
  const std::byte* const reads[] = {x.data(), w.data(), nullptr};
  std::byte* const writes[] = {y.data()};
  ThreadPool pool(threads, [](int) { prepare_matmul_thread(); });
  constexpr int rounds = 40;
  const auto once = [&] { run_tasks(pool, *kernel, reads, writes, scratch.all()); };
  once();
  const auto start = SteadyClock::now();
  for (int i = 0; i < rounds; ++i) once();
  return rounds * 2.0 * 1024 * 768 * 3072 / seconds_since(start);
}

double memory_bandwidth(int threads) {
  constexpr std::int64_t bytes = 256 * mib;
  std::vector<AlignedBytes> from;
  std::vector<AlignedBytes> to;
  for (int t = 0; t < threads; ++t) {
    from.emplace_back(bytes);
    to.emplace_back(bytes);
  }
  constexpr int rounds = 4;
  const double seconds = on_threads(threads, [&](int t) {
    const auto at = static_cast<std::size_t>(t);
    for (int i = 0; i < rounds; ++i) std::memcpy(to[at].data(), from[at].data(), static_cast<std::size_t>(bytes));
  });
  return 2.0 * rounds * threads * static_cast<double>(bytes) / seconds;
}

void move_streams(ThreadPool& pool, std::span<const Stream> streams) {
  constexpr std::int64_t line_bytes = 64;
  std::int64_t bytes = 0;
  for (const Stream& stream : streams) bytes += stream.bytes;
  const std::int64_t tasks = divide_up(bytes, 64 * kib);
  pool.run(tasks, [&](int, std::int64_t task) {
    for (const Stream& stream : streams) {
      const std::int64_t lines = stream.bytes / line_bytes;
      move_lines(stream, lines * task / tasks * line_bytes, lines * (task + 1) / tasks * line_bytes);
    }
  });
}

double disk_mixed_bandwidth(const std::filesystem::path& dir, std::int64_t file_bytes) {
  const std::string path = (dir / "disk-bench.spill").string();
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
  if (descriptor < 0) throw DeviceError("{}: cannot be opened for direct I/O", path);
  ::unlink(path.c_str());
  constexpr std::int64_t block = 4 * mib;
  const std::int64_t blocks = file_bytes / block;
  const ProbeBuffer memory(256 * mib);  // in huge pages and more than a cache has, as a run's
  Rotation buffers(memory);
  const std::unique_ptr<IoEngine> engine = make_io_engine({});
  const int file = engine->add_file(descriptor);
  std::vector<IoCompletion> done;
  const auto pass = [&](bool mixed) {
    const auto start = SteadyClock::now();
    std::int64_t next = 0;
    std::int64_t finished = 0;
    std::vector<std::int64_t> idle;
    for (std::int64_t i = 0; i < 16; ++i) idle.push_back(i);
    while (finished < blocks) {
      for (; !idle.empty() && next < blocks; idle.pop_back(), ++next) {
        const auto kind = mixed && next % 2 == 0 ? IoRequest::Kind::read : IoRequest::Kind::write;
        engine->submit({kind, file, next * block, buffers.take(block), block, static_cast<std::uint64_t>(idle.back())});
      }
      done.clear();
      engine->wait(done);
      for (const IoCompletion& completion : done) {
        if (completion.failed()) {
          throw DeviceError("{}: {} of {} bytes, {}", path, completion.bytes, completion.wanted_bytes,
                            std::strerror(completion.error));
        }
        idle.push_back(static_cast<std::int64_t>(completion.tag));
        ++finished;
      }
    }
    return static_cast<double>(file_bytes) / seconds_since(start);
  };
  pass(false);  // reads must find written blocks
  const double rate = pass(true);
  ::close(descriptor);
  return rate;
}

}  // namespace spillway::bench
