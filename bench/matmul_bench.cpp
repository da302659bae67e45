// Rates of the linear and attention kernels at the shapes of gpt2-124m, as the executor runs them, on one thread and
// on two. Prints GFLOP/s.
//
//   matmul_bench [seconds_per_measurement [part_of_the_names_wanted]]
#include <fmt/format.h>
#include <time.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "device/thread_pool.h"
#include "ops/attention/attention.h"
#include "ops/attention/cpu.h"
#include "ops/linear/cpu.h"
#include "ops/linear/linear.h"
#include "ops/matmul/matmul.h"
#include "probe/buffer.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

// Small numbers of either sign, so that no product meets denormals or infinities.
std::unique_ptr<ProbeBuffer> filled(const ValueType& type) {
  auto buffer = std::make_unique<ProbeBuffer>(std::max<std::int64_t>(1, type.bytes()));
  for (std::int64_t i = 0; i < type.elements(); ++i) {
    const auto number = static_cast<float>(i * 7919 % 1021 - 510) / 1024.0F;
    const bf16_t half = round_bf16(number);
    if (type.dtype == DType::f32) std::memcpy(buffer->data() + i * 4, &number, 4);
    if (type.dtype == DType::bf16) std::memcpy(buffer->data() + i * 2, &half, 2);
  }
  return buffer;
}

// Of this thread, so that a busy machine does not hide what the kernels do.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Measured {
  double gflops = 0;
  double gflop_per_cpu_second = 0;
  std::int64_t tasks = 0;
  std::int64_t scratch_bytes = 0;
};

class Run {
 public:
  explicit Run(const KernelKey& key, std::unique_ptr<Kernel> kernel) : key_(key), kernel_(std::move(kernel)) {
    for (const ValueType& type : key_.reads) {
      reads_.push_back(filled(type));
      read_addresses_.push_back(type.rows == 0 ? nullptr : reads_.back()->data());
    }
    for (const ValueType& type : key_.writes) {
      writes_.push_back(filled(type));
      write_addresses_.push_back(writes_.back()->data());
    }
  }

  Measured measure(int threads, double seconds) {
    std::vector<std::unique_ptr<ProbeBuffer>> scratch;
    for (int i = 0; i < threads; ++i) scratch.push_back(std::make_unique<ProbeBuffer>(kernel_->scratch_bytes()));
    std::vector<double> busy_seconds(static_cast<std::size_t>(threads), 0.0);
    ThreadPool pool(threads, [](int) { prepare_matmul_thread(); });
    std::int64_t rounds = 0;
    const auto start = Clock::now();
    double elapsed = 0;
    while (elapsed < seconds) {
      pool.run(kernel_->tasks(), [&](int thread, std::int64_t task, std::int64_t last) {
        const auto at = static_cast<std::size_t>(thread);
        const double begin = cpu_seconds();
        kernel_->run(task, {read_addresses_,
                            write_addresses_,
                            {scratch[at]->data(), static_cast<std::size_t>(kernel_->scratch_bytes())},
                            last});
        busy_seconds[at] += cpu_seconds() - begin;
      });
      ++rounds;
      elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    }
    const double busy = std::accumulate(busy_seconds.begin(), busy_seconds.end(), 0.0);
    const double flops = key_.spec->cost(key_.attrs, key_.reads, key_.writes).flops * static_cast<double>(rounds);
    return {flops / elapsed / 1e9, flops / busy / 1e9, kernel_->tasks(), kernel_->scratch_bytes()};
  }

 private:
  KernelKey key_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<std::unique_ptr<ProbeBuffer>> reads_;
  std::vector<std::unique_ptr<ProbeBuffer>> writes_;
  std::vector<const std::byte*> read_addresses_;
  std::vector<std::byte*> write_addresses_;
};

using Make = std::unique_ptr<Kernel> (*)(const KernelKey&);

// Seconds for each number, and a part of the names of those that are wanted.
struct Wanted {
  double seconds = 0.2;
  std::string name;
};

void print(const std::string& what, const OpSpec& spec, Make make, Attrs attrs, std::vector<ValueType> reads,
           const Wanted& wanted) {
  if (what.find(wanted.name) == std::string::npos) return;
  KernelKey key{&spec, std::move(attrs), std::move(reads), {}};
  key.writes = spec.infer(key.attrs, key.reads);
  Run run(key, make(key));
  const Measured one = run.measure(1, wanted.seconds);
  const Measured two = run.measure(2, wanted.seconds);
  fmt::print("{:<44} {:8.1f} {:8.1f} {:14.1f} {:14.1f}   {:4} tasks, {:8} scratch bytes\n", what, one.gflops,
             two.gflops, one.gflop_per_cpu_second, two.gflop_per_cpu_second, one.tasks, one.scratch_bytes);
  std::fflush(stdout);
}

struct Linear {
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
  bool out_in;
};

void bench_linear(const Linear& size, DType dtype, const Wanted& wanted) {
  const Attrs attrs({{"weight_out_in", std::int64_t{size.out_in}}});
  const ValueType x{dtype, size.rows, size.in};
  const ValueType dy{dtype, size.rows, size.out};
  ValueType weight{dtype, size.in, size.out};
  if (size.out_in) weight = {dtype, size.out, size.in};
  const ValueType none{DType::f32, 0, 1};
  const std::string shape = fmt::format("{} {:4} x {:4} x {:4} {}", name_of(dtype), size.rows, size.in, size.out,
                                        size.out_in ? "[out, in]" : "[in, out]");
  print("forward " + shape, linear_spec, &make_linear_cpu, attrs, {x, weight, {dtype, size.out, 1}}, wanted);
  print("dx      " + shape, linear_dx_spec, &make_linear_dx_cpu, attrs, {dy, weight, none}, wanted);
  print("dw      " + shape, linear_dw_spec, &make_linear_dw_cpu, attrs, {x, dy, none}, wanted);
  print("dw add  " + shape, linear_dw_spec, &make_linear_dw_cpu, attrs, {x, dy, {DType::f32, weight.rows, weight.cols}},
        wanted);
}

void bench_attention(std::int64_t sequences, const AttentionShape& shape, DType dtype, const Wanted& wanted) {
  const Attrs attrs({{"sequence_length", shape.sequence_length},
                     {"heads", shape.heads},
                     {"kv_heads", shape.kv_heads},
                     {"head_dim", shape.head_dim}});
  const std::int64_t rows = sequences * shape.sequence_length;
  const ValueType q{dtype, rows, shape.heads * shape.head_dim};
  const ValueType kv{dtype, rows, shape.kv_heads * shape.head_dim};
  const std::string what = fmt::format("{} {} x {}, {}/{} of {}", name_of(dtype), sequences, shape.sequence_length,
                                       shape.heads, shape.kv_heads, shape.head_dim);
  print("attention    " + what, attention_spec, &make_attention_cpu, attrs, {q, kv, kv}, wanted);
  print("attention_dx " + what, attention_dx_spec, &make_attention_dx_cpu, attrs,
        {q, kv, kv, q, {DType::f32, rows, shape.heads}, q}, wanted);
}

void bench_all(const Wanted& wanted) {
  fmt::print("{}\n{:<44} {:>8} {:>8} {:>14} {:>14}\n", matmul_numeric_key(), "GFLOP/s", "1 thread", "2",
             "per CPU s of 1", "of 2");
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const Linear& size :
         {Linear{1024, 768, 2304, false}, Linear{1024, 768, 768, false}, Linear{1024, 768, 3072, false},
          Linear{1024, 3072, 768, false}, Linear{1024, 768, 3072, true}, Linear{128, 768, 5440, true},
          Linear{1024, 768, 5440, true}, Linear{1, 768, 3072, true}}) {
      bench_linear(size, dtype, wanted);
    }
    bench_attention(1, {1024, 12, 12, 64}, dtype, wanted);
    bench_attention(4, {256, 12, 12, 64}, dtype, wanted);
    bench_attention(1, {2048, 32, 4, 64}, dtype, wanted);
  }
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  spillway::Wanted wanted;
  if (argc > 1) wanted.seconds = std::atof(argv[1]);
  if (argc > 2) wanted.name = argv[2];
  spillway::bench_all(wanted);
  return 0;
}
