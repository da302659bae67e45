// The two checks that do what a run does: compute, and write, sync and read back.
#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/steady_clock.h"
#include "doctor/gather.h"
#include "executor/kernel_table.h"
#include "ops/adamw/adamw.h"
#include "ops/adamw/reference.h"
#include "ops/linear/linear.h"
#include "ops/linear/reference.h"
#include "ops/matmul/matmul.h"
#include "store/aligned_buffer.h"
#include "store/spill_file.h"

namespace spillway {
namespace {

constexpr std::int64_t tried_block_bytes = mib;
constexpr std::int64_t tried_blocks = 32;

std::uint64_t mixed(std::uint64_t x) {  // the finalizer of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Runs one op by itself. Null reads are absent.
std::vector<std::vector<std::byte>> run_alone(const Kernel& kernel, const KernelKey& key,
                                              std::span<const std::vector<std::byte>> reads) {
  std::vector<AlignedBytes> memory;
  std::vector<const std::byte*> read;
  std::vector<std::byte*> write;
  for (const std::vector<std::byte>& bytes : reads) {
    AlignedBytes& at = memory.emplace_back(std::max<std::int64_t>(1, std::ssize(bytes)));
    std::copy(bytes.begin(), bytes.end(), at.data());
    read.push_back(bytes.empty() ? nullptr : at.data());
  }
  for (const ValueType& type : key.writes) write.push_back(memory.emplace_back(type.bytes()).data());
  const AlignedBytes scratch(std::max<std::int64_t>(1, kernel.scratch_bytes()));
  for (std::int64_t task = 0; task < kernel.tasks(); ++task) kernel.run(task, {read, write, scratch.all()});
  std::vector<std::vector<std::byte>> written;
  for (std::size_t i = 0; i < write.size(); ++i) written.emplace_back(write[i], write[i] + key.writes[i].bytes());
  return written;
}

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Whole numbers from -4 to 4: sums of 256 products are exact in f32 in any order.
std::vector<double> whole_numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < count; ++i)
    numbers.push_back(static_cast<double>(mixed(seed + static_cast<std::uint64_t>(i)) % 9) - 4);
  return numbers;
}

std::vector<std::byte> as(DType dtype, const std::vector<double>& numbers) {
  std::vector<float> wide(numbers.begin(), numbers.end());
  if (dtype == DType::f32) return bytes_of(wide);
  std::vector<bf16_t> narrow;
  for (const float number : wide) narrow.push_back(round_bf16(number));
  return bytes_of(narrow);
}

std::string product_fault(DType dtype, const KernelFactory& make) {
  constexpr std::int64_t rows = 96;
  constexpr std::int64_t in = 256;
  constexpr std::int64_t out = 160;
  const std::vector<double> x = whole_numbers(rows * in, 1);
  const std::vector<double> weight = whole_numbers(out * in, 1000003);
  KernelKey key{&linear_spec,
                {{"weight_out_in", std::int64_t{1}}, {"out_f32", std::int64_t{1}}},
                {{dtype, rows, in}, {dtype, out, in}, {DType::f32, 0, 0}},
                {}};
  key.writes = key.spec->infer(key.attrs, key.reads);
  const std::vector<std::vector<std::byte>> reads{as(dtype, x), as(dtype, weight), {}};
  const std::vector<float> got = floats_of(run_alone(*make(key), key, reads).front());
  const std::vector<double> wanted = LinearReference{rows, in, out, true}.forward(x, weight, {});
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (static_cast<double>(got[i]) != wanted[i])
      return fmt::format("a {} matrix product gives {} where {} is right", name_of(dtype), got[i], wanted[i]);
  }
  return {};
}

std::string update_fault(const KernelFactory& make) {
  constexpr std::int64_t rows = 8;
  constexpr std::int64_t cols = 100;
  std::vector<std::vector<float>> state(4);  // weight, moments, gradient
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const auto at = [&](std::uint64_t which) {
      return static_cast<float>(mixed(4 * static_cast<std::uint64_t>(i) + which) % 2001) / 1000.0F - 1.0F;
    };
    for (std::size_t which = 0; which < state.size(); ++which) state[which].push_back(at(which));
    state[2].back() *= state[2].back();  // a second moment is not negative
  }
  AdamwProducts products;
  const AdamwSettings settings{.weight_decay = 0.1};
  products.advance(settings);
  const AdamwScalars scalars = adamw_scalars(settings, products, 1e-3);
  const ValueType type{DType::f32, rows, cols};
  const ValueType none{DType::f32, 0, 0};
  KernelKey key{&adamw_spec,
                {{"row_begin", std::int64_t{0}}, {"decay", std::int64_t{1}}},
                {type, type, type, none, type, none, adamw_scalars_type},
                {}};
  key.writes = key.spec->infer(key.attrs, key.reads);
  std::vector<float> scalar_row(9);
  std::memcpy(scalar_row.data(), &scalars, sizeof scalars);
  const std::vector<std::vector<std::byte>> reads{
      bytes_of(state[0]), bytes_of(state[1]), bytes_of(state[2]), {}, bytes_of(state[3]), {}, bytes_of(scalar_row)};
  const auto written = run_alone(*make(key), key, reads);
  const std::vector<float> p = floats_of(written[0]);
  for (std::size_t i = 0; i < p.size(); ++i) {
    const reference::AdamwElement wanted =
        reference::adamw({state[0][i], state[1][i], state[2][i]}, state[3][i], 1.0F, scalars);
    if (p[i] != wanted.p) return fmt::format("AdamW gives {} where {} is right", p[i], wanted.p);
  }
  return {};
}

void fill(std::span<std::byte> block, std::int64_t number) {
  for (std::size_t at = 0; at < block.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = mixed(static_cast<std::uint64_t>(number) * block.size() + at + 1);
    std::memcpy(block.data() + at, &word, sizeof word);
  }
}

}  // namespace

std::vector<std::string> check_numbers(bool bf16, const KernelFactory& make) {
  std::vector<std::string> faults{product_fault(DType::f32, make), update_fault(make)};
  if (bf16) faults.push_back(product_fault(DType::bf16, make));
  std::erase(faults, std::string());
  return faults;
}

void check_disk(const std::filesystem::path& directory, DiskCalls& calls, DirectoryFacts& facts) {
  SpillFile file = SpillFile::make_unnamed(directory, tried_blocks * tried_block_bytes);
  file.turn_direct();
  facts.direct = file.direct();
  facts.why_not_direct = file.note();
  const AlignedBuffer wanted(tried_block_bytes);
  const AlignedBuffer got(tried_block_bytes);
  for (std::int64_t block = 0; block < tried_blocks; ++block) {
    fill(wanted.span(), block);
    file.write(calls, block * tried_block_bytes, wanted.span());
  }
  const auto start = SteadyClock::now();
  file.flush(calls);
  facts.flush_seconds = seconds_since(start);
  for (std::int64_t block = 0; block < tried_blocks; ++block) {
    fill(wanted.span(), block);
    file.read(calls, block * tried_block_bytes, got.span());
    const auto [differs, _] = std::mismatch(wanted.span().begin(), wanted.span().end(), got.span().begin());
    if (differs == wanted.span().end()) continue;
    facts.disk_fault = fmt::format("byte {} of what was written was not what was read back",
                                   block * tried_block_bytes + (differs - wanted.span().begin()));
    return;
  }
}

}  // namespace spillway
