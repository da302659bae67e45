#include "executor/kernel_table.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/bytes.h"
#include "base/error.h"
#include "device/thread_pool.h"

namespace spillway {

namespace {

constexpr std::int64_t host_alignment_bytes = 256;
constexpr std::int64_t storage_alignment_bytes = 4096;  // of kernels, and of direct I/O

// Where in its offset read the op begins, in bytes.
std::int64_t offset_bytes_of(const Program& program, const Op& op) {
  if (op.spec->offset_read < 0) return 0;
  const ValueType type = program.type_of(op.reads[static_cast<std::size_t>(op.spec->offset_read)]);
  return op.attrs.integer_or("row_begin", 0) * type.cols * size_of(type.dtype);
}

// Ops that differ only in that offset have the same.
Attrs attrs_of_kernel(const Op& op) {
  if (op.spec->offset_read < 0) return op.attrs;
  Attrs attrs;
  for (const auto& [name, item] : op.attrs.items()) attrs.set(name, name == "row_begin" ? std::int64_t{0} : item);
  return attrs;
}

bool is_host(const Value& value) { return value.kind == ValueKind::input || value.kind == ValueKind::output; }

}  // namespace

AlignedBytes::AlignedBytes(std::int64_t bytes) : size_bytes_(std::max(bytes, storage_alignment_bytes)) {
  const auto size = static_cast<std::size_t>(size_bytes_);
  data_.reset(new (std::align_val_t{static_cast<std::size_t>(storage_alignment_bytes)}) std::byte[size]);
  std::memset(data_.get(), 0, size);
}

void AlignedBytes::Free::operator()(std::byte* data) const {
  ::operator delete[](data, std::align_val_t{static_cast<std::size_t>(storage_alignment_bytes)});
}

HostValues::HostValues(const Program& program) : bytes_(bytes_of(program)) {
  for (const Value& value : program.values) {
    offsets_.push_back(is_host(value) ? end_bytes_ : -1);
    if (is_host(value)) end_bytes_ += round_up(value.type.bytes(), host_alignment_bytes);
  }
}

std::int64_t HostValues::bytes_of(const Program& program) {
  std::int64_t bytes = 0;
  for (const Value& value : program.values) {
    if (is_host(value)) bytes += round_up(value.type.bytes(), host_alignment_bytes);
  }
  return bytes;
}

KernelKey key_of(const Program& program, const Op& op) {
  KernelKey key{op.spec, attrs_of_kernel(op), {}, {}};
  for (const Operand& read : op.reads) key.reads.push_back(program.type_of(read));
  for (const Operand& write : op.writes) key.writes.push_back(program.type_of(write));
  return key;
}

void run_tasks(ThreadPool& threads, const Kernel& kernel, std::span<const std::byte* const> reads,
               std::span<std::byte* const> writes, std::span<std::byte> scratch) {
  constexpr std::int64_t line_bytes = 64;
  const std::int64_t part = std::ssize(scratch) / threads.threads() / line_bytes * line_bytes;
  SPILLWAY_CHECK(part >= kernel.scratch_bytes(), "{} bytes of scratch instead of {}", part, kernel.scratch_bytes());
  threads.run(kernel.tasks(), [&](int thread, std::int64_t task, std::int64_t last_task) {
    kernel.run(task,
               {reads, writes, scratch.subspan(static_cast<std::size_t>(thread * part), static_cast<std::size_t>(part)),
                last_task});
    check_float_mode();
  });
}

const Kernel& KernelCache::get_from(Kernels& kernels, const KernelKey& key, const MakeKernel& make) {
  const auto found =
      std::find_if(kernels.begin(), kernels.end(), [&](const auto& entry) { return entry.first == key; });
  if (found != kernels.end()) return *found->second;
  kernels.emplace_back(key, make(key));
  return *kernels.back().second;
}

const Kernel& KernelCache::get(const KernelKey& key) {
  const Kernel& kernel = get_from(kernels_, key, make_ ? make_ : make_cpu_kernel);
  scratch_bytes_ = std::max(scratch_bytes_, kernel.scratch_bytes());
  return kernel;
}

const Kernel& KernelCache::get_on_host(const KernelKey& key) {
  return make_ ? get_from(host_kernels_, key, make_cpu_kernel) : get(key);
}

std::int64_t KernelCache::compiled_products() const {
  std::int64_t products = 0;
  for (const auto& [key, kernel] : kernels_) products += kernel->compiled_products();
  return products;
}

void KernelCache::make_all(const Program& program) {
  for (const Op& op : program.ops) get(key_of(program, op));
}

BoundProgram::BoundProgram(const Program& program, const ProgramLayout& layout, std::byte* values, bool has_host,
                           KernelCache& kernels)
    : program_(program), host_(program), values_(values) {
  for (const Op& op : program.ops) {
    const std::size_t first = operands_.size();
    for (const Operand& read : op.reads) operands_.push_back(where(layout, read));
    if (const std::int64_t offset = offset_bytes_of(program, op); offset > 0) {
      operands_[first + static_cast<std::size_t>(op.spec->offset_read)].offset_bytes += offset;
    }
    for (const Operand& write : op.writes) operands_.push_back(where(layout, write));
    first_.push_back(static_cast<std::uint32_t>(operands_.size()));
    kernels_.push_back(&kernels.get(key_of(program, op)));
    if (has_host) host_kernels_.push_back(op.spec->anywhere ? &kernels.get_on_host(key_of(program, op)) : nullptr);
  }
}

BoundProgram::Where BoundProgram::where(const ProgramLayout& layout, const Operand& operand) const {
  if (!operand.exists()) return {};
  const Place& place = layout.places[index_of(operand.first)];
  if (place.bundle != BundleId::none) return {place.bundle, place.offset_bytes};
  const std::byte* const value = host_.data(operand.first);
  SPILLWAY_CHECK(value != nullptr, "value %{} lies nowhere", index_of(operand.first));
  return {BundleId::none, value - host_.all().data()};
}

void BoundProgram::find(OpId op, const BundleData& data, std::byte* values, Call& call) const {
  const auto at = [&](const Where& where) -> std::byte* {
    if (where.offset_bytes < 0) return nullptr;
    return (where.bundle == BundleId::none ? values : data[index_of(where.bundle)]) + where.offset_bytes;
  };
  const std::size_t i = index_of(op);
  const auto operands = std::span(operands_).subspan(first_[i], first_[i + 1] - first_[i]);
  const std::size_t reads = program_.ops[i].reads.size();
  call.reads.clear();
  call.writes.clear();
  for (const Where& read : operands.first(reads)) call.reads.push_back(at(read));
  for (const Where& write : operands.subspan(reads)) call.writes.push_back(at(write));
}

void BoundProgram::prepare(OpId op, const BundleData& data, Call& call) const {
  call.kernel = kernels_[index_of(op)];
  find(op, data, values_ != nullptr ? values_ : host_.all().data(), call);
}

void BoundProgram::prepare_on_host(OpId op, const BundleData& data, Call& call) const {
  call.kernel = (host_kernels_.empty() ? kernels_ : host_kernels_)[index_of(op)];
  find(op, data, host_.all().data(), call);
}

std::int64_t BoundProgram::updated_by(OpId op) const {
  const Op& what = program_.ops[index_of(op)];
  return what.spec->anywhere ? program_.type_of(what.writes.front()).elements() : 0;
}

}  // namespace spillway
