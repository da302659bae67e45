// The CPU kernels between the products, beside what bounds them: the ops of a recorded training step, each kind once,
// but for the body's linear layers, AdamW, and what moves less than 64 KiB; with the products of the head, to show the
// whole of the cross-entropy in chunks. An op runs on its own addresses in the step's layout, so what is done in place
// there is done in place here, in turn with its likes of other layers. Before and after it a loop moves the bytes that
// the op must move, of the same operands, each once, on the same threads, and computes nothing.
// Share: of the time of that loop in the time of the kernel; of products and attention that of their FLOPs at the rate
// of a matrix loop, where it is longer. All alternated in rounds; medians.
//   kernels_bench [preset=gpt2-124m,llama-0.3b] [tokens=1024] [micro_batches=1] [dtype=bf16] [rounds=9] [threads=2]
//     [memory=256]
// preset: also llama-30m. threads: all unless given. memory: MiB to be moved before an op meets the same operands
// again, where there are as many.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "ops/adamw/adamw.h"
#include "ops/matmul/matmul.h"
#include "step_ops.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

constexpr std::int64_t least_bytes = 64 * kib;  // less is over before the threads have met

double bytes_of(const std::vector<Stream>& streams) {
  std::int64_t bytes = 0;
  for (const Stream& stream : streams) bytes += stream.bytes * (int{stream.read} + int{stream.written});
  return static_cast<double>(bytes);
}

double flops_of(const StepOp& op) {  // of products
  if (!op.is_linear() && !op.is_attention()) return 0;
  return op.key.spec->cost(op.key.attrs, op.key.reads, op.key.writes).flops;
}

template <typename Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Measured {
  double seconds = 0;
  double moving_seconds = 0;
  double matrix_rate = 0;  // FLOP/s; 0: the op has no products
  double share = 0;
};

// Runs ops on a pool, beside their bounds.
class Timer {
 public:
  Timer(const Settings& settings, DType dtype, int threads, std::int64_t scratch_bytes)
      : rounds_(settings.integer("rounds", 9)),
        memory_bytes_(static_cast<double>(settings.integer("memory", 256) * mib)),
        matrix_rate_(dtype == DType::bf16 ? &matrix_rate_bf16 : &matrix_rate_f32),
        pool_(threads, [](int) { prepare_matmul_thread(); }),
        scratch_(round_up(scratch_bytes, 4096) * threads) {}

  Measured measure(const std::vector<StepOp>& kind, const StepOps& step) {
    std::vector<std::vector<Stream>> streams;  // of as many ops as take turns
    for (double bytes = 0; streams.size() < kind.size() && bytes < memory_bytes_; bytes += bytes_of(streams.back())) {
      step.touch(kind[streams.size()]);
      streams.push_back(streams_of(kind[streams.size()]));
    }
    std::size_t turn = 0;
    const auto compute = [&] { run(kind[turn++ % streams.size()].call); };
    const auto only_move = [&] { move_streams(pool_, streams[turn++ % streams.size()]); };
    const double flops = flops_of(kind.front());
    std::vector<double> times, moving, rates, shares;
    compute();  // warms up
    for (std::int64_t round = 0; round < rounds_; ++round) {
      const double before = seconds_of(only_move);
      times.push_back(seconds_of(compute));
      moving.push_back((before + seconds_of(only_move)) / 2);
      rates.push_back(flops > 0 ? matrix_rate_(pool_.threads()) : 0);
      shares.push_back(std::max(moving.back(), flops > 0 ? flops / rates.back() : 0) / times.back());
    }
    step.give_back();
    return {median(times), median(moving), median(rates), median(shares)};
  }

 private:
  void run(const BoundProgram::Call& call) { run_tasks(pool_, *call.kernel, call.reads, call.writes, scratch_.all()); }

  std::int64_t rounds_;
  double memory_bytes_;
  double (*matrix_rate_)(int);
  ThreadPool pool_;
  AlignedBytes scratch_;
};

// Milliseconds of a step.
struct Sum {
  double all = 0;
  double bound = 0;  // were each kernel at its bound
  double products = 0;

  void add(double milliseconds, double share, bool product) {
    all += milliseconds;
    bound += milliseconds * share;
    products += product ? milliseconds : 0;
  }
};

void print(const std::vector<StepOp>& kind, double bytes, const Measured& measured) {
  const StepOp& op = kind.front();
  std::vector<ValueType> types = op.key.reads;
  types.insert(types.end(), op.key.writes.begin(), op.key.writes.end());
  const ValueType largest = *std::max_element(
      types.begin(), types.end(), [](const ValueType& a, const ValueType& b) { return a.bytes() < b.bytes(); });
  const double flops = flops_of(op);
  std::string products;
  if (flops > 0) {
    products = fmt::format("{:>9.2f} {:>9.1f} {:>9.1f}", flops / 1e9, flops / measured.seconds / 1e9,
                           measured.matrix_rate / 1e9);
  }
  fmt::print("{:<14} {:<16} {:>6} {:>10.1f} {:>8.2f} {:>8.1f} {:>8.1f} {:>29} {:>7.3f}\n", op.key.spec->name,
             fmt::format("{} {}x{}", name_of(largest.dtype), largest.rows, largest.cols), kind.size(),
             measured.seconds * 1e6, bytes / 1e6, bytes / measured.seconds / 1e9, bytes / measured.moving_seconds / 1e9,
             products, measured.share);
  std::fflush(stdout);
}

void bench(const Settings& settings, const std::string& preset) {
  const DType dtype = settings.text("dtype", "bf16") == "f32" ? DType::f32 : DType::bf16;
  const int threads = static_cast<int>(settings.integer("threads", std::thread::hardware_concurrency()));
  const StepShape shape{1, settings.integer("tokens", 1024), settings.integer("micro_batches", 1)};
  const StepOps step(config_named(preset), dtype, shape);
  Timer timer(settings, dtype, threads, step.scratch_bytes());
  fmt::print("{}, micro-batches of {} tokens, {}, {} threads\n", preset, shape.tokens(), name_of(dtype), threads);
  fmt::print("{:<14} {:<16} {:>6} {:>10} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>7}\n", "op", "largest operand",
             "a step", "us", "MB", "GB/s", "mover", "GFLOP", "GFLOP/s", "matrix", "share");
  Sum head, others;
  for (const std::vector<StepOp>& kind : step.kinds()) {
    const StepOp& op = kind.front();
    const double bytes = bytes_of(streams_of(op));
    if (op.key.spec == &adamw_spec || (op.is_linear() && !op.in_head) || bytes < least_bytes) continue;
    const Measured measured = timer.measure(kind, step);
    print(kind, bytes, measured);
    const double milliseconds = 1e3 * measured.seconds * static_cast<double>(kind.size());
    (op.in_head ? head : others).add(milliseconds, measured.share, op.is_linear());
  }
  fmt::print("=> head {:.1f} ms a step, {:.1f}% of it products, {:.3f} of its bounds; others {:.1f} ms, {:.3f}\n",
             head.all, 100 * head.products / head.all, head.bound / head.all, others.all, others.bound / others.all);
}

int bench_all(const Settings& settings) {
  for (const std::string& preset : items(settings.text("preset", "gpt2-124m,llama-0.3b"))) bench(settings, preset);
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_bench(argc, argv, spillway::bench::bench_all); }
