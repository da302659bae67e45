#include "sim/op_rates.h"

#include <unordered_map>

#include "base/error.h"
#include "program/spec.h"

namespace spillway {
namespace {

std::string shape_of(const ValueType& type) {
  return type.rows == 0 ? std::string("-") : fmt::format("{}[{},{}]", name_of(type.dtype), type.rows, type.cols);
}

template <typename T>
void append(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void append(std::string& key, const Program& program, std::span<const Operand> operands) {
  append(key, operands.size());
  for (const Operand& operand : operands) {
    const ValueType type = program.type_of(operand);
    append(key, type.dtype);
    append(key, type.rows);
    append(key, type.cols);
  }
}

// Ops with equal keys are of one class. To be compared only: a class says its shapes in words, which takes longer.
void write_key(std::string& key, const Program& program, const Op& op) {
  key.clear();
  append(key, reinterpret_cast<std::uintptr_t>(op.spec));
  append(key, program, op.reads);
  append(key, program, op.writes);
  for (const auto& [name, item] : op.attrs.items()) {
    key += name;
    append(key, item.index());
    std::visit([&](const auto& value) { append(key, value); }, item);
  }
}

}  // namespace

OpClass class_of(const Program& program, const Op& op) {
  std::vector<ValueType> reads;
  std::vector<ValueType> writes;
  for (const Operand& read : op.reads) reads.push_back(program.type_of(read));
  for (const Operand& write : op.writes) writes.push_back(program.type_of(write));
  OpClass what;
  what.op = std::string(op.spec->name);
  for (const ValueType& type : reads) what.shape += shape_of(type) + ' ';
  what.shape += "->";
  for (const ValueType& type : writes) what.shape += ' ' + shape_of(type);
  for (const auto& [name, item] : op.attrs.items()) {
    what.shape += std::visit([&, key = name](const auto& value) { return fmt::format(" {}={}", key, value); }, item);
  }
  const auto is_bf16 = [](const ValueType& type) { return type.rows > 0 && type.dtype == DType::bf16; };
  for (const ValueType& type : reads) {
    if (is_bf16(type)) what.dtype = DType::bf16;
  }
  if (op.spec->cost != nullptr) {
    const Cost cost = op.spec->cost(op.attrs, reads, writes);
    what.flops = cost.flops;
    what.bytes = cost.bytes;
  }
  return what;
}

OpClasses classes_of(const Program& program) {
  OpClasses all;
  std::unordered_map<std::string, std::size_t> known;
  std::string key;
  for (const Op& op : program.ops) {
    write_key(key, program, op);
    const auto [entry, fresh] = known.try_emplace(key, all.classes.size());
    if (fresh) {
      all.classes.push_back(class_of(program, op));
      all.count.push_back(0);
    }
    all.of_op.push_back(entry->second);
    ++all.count[entry->second];
  }
  return all;
}

// An update takes what the processor's rate says, where it is known.
static void set_update_seconds(const Program& program, const UpdateRates& rates, StepRates& step) {
  step.host_seconds = step.op_seconds;
  step.shares_processor = rates.host_parameters_per_second == 0 && rates.device_parameters_per_second == 0;
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    if (!program.ops[op].spec->anywhere) continue;
    const auto parameters = static_cast<double>(program.type_of(program.ops[op].writes.front()).elements());
    if (rates.host_parameters_per_second > 0) step.host_seconds[op] = parameters / rates.host_parameters_per_second;
    if (rates.device_parameters_per_second > 0) step.op_seconds[op] = parameters / rates.device_parameters_per_second;
  }
}

StepRates step_rates(const Program& program, const MachineRates& rates, const DiskRate& disk) {
  const OpClasses classes = classes_of(program);
  std::vector<double> seconds;
  for (const OpClass& what : classes.classes) seconds.push_back(op_estimate(what, rates).seconds);
  StepRates step;
  for (const std::size_t index : classes.of_op) step.op_seconds.push_back(seconds[index]);
  set_update_seconds(program, rates.update, step);
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    if (program.ops[op].repeats) step.repeated_seconds += step.op_seconds[op];
  }
  step.read_bytes_per_second = disk.read_bytes_per_second;
  step.write_bytes_per_second = disk.write_bytes_per_second;
  step.mixed_bytes_per_second = disk.mixed_bytes_per_second;
  step.compute_slowdown = rates.compute_slowdown;
  step.disk_slowdown = rates.disk_slowdown;
  step.request_seconds = disk.request_seconds;
  step.attach_seconds = rates.attach_seconds;
  step.wake_seconds = rates.wake_seconds;
  step.link = rates.link;
  return step;
}

}  // namespace spillway
