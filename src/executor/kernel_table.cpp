#include "executor/kernel_table.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/bytes.h"
#include "base/error.h"

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

BoundProgram::BoundProgram(const Program& program, const ProgramLayout& layout, const Layout& whole,
                           const OperandMemory& memory, const OperandMemory& host, KernelCache& kernels)
    : program_(program), host_(program), values_(memory.values) {
  const auto address_in = [&](const OperandMemory& in) {
    return [&](const Operand& operand) -> std::byte* {
      if (!operand.exists()) return nullptr;
      const Place& place = layout.places[index_of(operand.first)];
      if (place.bundle != BundleId::none)
        return in.pages + whole.bundles[index_of(place.bundle)].address + place.offset_bytes;
      std::byte* const value = host_.data(operand.first);
      return in.values == nullptr ? value : in.values + (value - host_.all().data());
    };
  };
  for (const Op& op : program.ops) {
    kernels_.push_back(&kernels.get(key_of(program, op)));
    add(program, op, address_in(memory), in_pages_);
    if (host.pages == memory.pages) continue;
    host_kernels_.push_back(op.spec->anywhere ? &kernels.get_on_host(key_of(program, op)) : nullptr);
    add(program, op.spec->anywhere ? op : Op(), address_in(host), on_host_);
  }
}

template <typename Address>
void BoundProgram::add(const Program& program, const Op& op, const Address& address, Operands& to) {
  for (const Operand& read : op.reads) to.reads.push_back(address(read));
  if (const std::int64_t offset = op.spec != nullptr ? offset_bytes_of(program, op) : 0; offset > 0) {
    to.reads[to.first_read.back() + static_cast<std::size_t>(op.spec->offset_read)] += offset;
  }
  for (const Operand& write : op.writes) to.writes.push_back(address(write));
  to.first_read.push_back(static_cast<std::uint32_t>(to.reads.size()));
  to.first_write.push_back(static_cast<std::uint32_t>(to.writes.size()));
}

BoundProgram::Call BoundProgram::call_in(const std::vector<const Kernel*>& kernels, const Operands& operands,
                                         OpId op) const {
  const std::size_t i = index_of(op);
  const auto part = [i](const auto& all, const std::vector<std::uint32_t>& first) {
    return std::span(all).subspan(first[i], first[i + 1] - first[i]);
  };
  return {kernels[i], part(operands.reads, operands.first_read), part(operands.writes, operands.first_write)};
}

std::int64_t BoundProgram::updated_by(OpId op) const {
  const Op& what = program_.ops[index_of(op)];
  return what.spec->anywhere ? program_.type_of(what.writes.front()).elements() : 0;
}

}  // namespace spillway
