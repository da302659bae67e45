#include "program/program.h"

#include <fmt/format.h>

#include "base/error.h"
#include "program/spec.h"

namespace spillway {
namespace {

const Attrs::Item* find(std::span<const std::pair<std::string_view, Attrs::Item>> items, std::string_view name) {
  for (const auto& [key, item] : items) {
    if (key == name) return &item;
  }
  return nullptr;
}

std::string describe(const Program& program, const State& state, const Operand& operand) {
  if (!operand.exists()) return "-";
  const Value& first = program.value(operand.first);
  const ValueType type = program.type_of(operand);
  std::string name = fmt::format("%{}", index_of(operand.first));
  if (operand.count > 1) name += fmt::format("+{}", operand.count);
  if (first.piece != PieceId::none) name += fmt::format("({})", state.describe(first.piece));
  return fmt::format("{}:{}[{}x{}]", name, name_of(type.dtype), type.rows, type.cols);
}

}  // namespace

std::int64_t Attrs::integer(std::string_view name) const {
  const Item* item = find(items_, name);
  SPILLWAY_CHECK(item != nullptr && std::holds_alternative<std::int64_t>(*item), "no integer attribute {}", name);
  return std::get<std::int64_t>(*item);
}

double Attrs::real(std::string_view name) const {
  const Item* item = find(items_, name);
  SPILLWAY_CHECK(item != nullptr && std::holds_alternative<double>(*item), "no real attribute {}", name);
  return std::get<double>(*item);
}

std::int64_t Attrs::integer_or(std::string_view name, std::int64_t otherwise) const {
  return find(items_, name) != nullptr ? integer(name) : otherwise;
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::head: return "head";
    case Phase::backward: return "backward";
    case Phase::recompute: return "recompute";
    case Phase::update: return "update";
    case Phase::evaluate: return "evaluate";
    case Phase::generate: return "generate";
  }
  return "?";
}

std::string describe(const Label& label) {
  std::string text(name_of(label.phase));
  if (label.layer >= 0) text += fmt::format(" layer {}", label.layer);
  if (!label.part.empty()) text += fmt::format(" {}", label.part);
  if (label.index != 0) text += fmt::format("#{}", label.index);
  if (label.micro_batch >= 0) text += fmt::format(" micro-batch {}", label.micro_batch);
  return text;
}

ValueType Program::type_of(const Operand& operand) const {
  if (!operand.exists()) return {DType::f32, 0, 0};
  ValueType type = value(operand.first).type;
  for (std::size_t i = 1; i < static_cast<std::size_t>(operand.count); ++i) {
    const ValueType& part = values[index_of(operand.first) + i].type;
    SPILLWAY_CHECK(part.dtype == type.dtype && part.cols == type.cols, "operand %{} has parts of different kinds",
                   index_of(operand.first));
    type.rows += part.rows;
  }
  return type;
}

std::string dump(const Program& program, const State& state) {
  std::string text;
  const Label* label = nullptr;
  for (const Op& op : program.ops) {
    if (label == nullptr || !(*label == op.label)) text += fmt::format("# {}\n", describe(op.label));
    label = &op.label;
    std::string writes;
    for (const Operand& operand : op.writes) {
      writes += fmt::format("{}{}", writes.empty() ? "" : ", ", describe(program, state, operand));
    }
    std::string reads;
    for (const Operand& operand : op.reads) {
      reads += fmt::format("{}{}", reads.empty() ? "" : ", ", describe(program, state, operand));
    }
    std::string attrs;
    for (const auto& [name, item] : op.attrs.items()) {
      attrs += std::visit([&, key = name](auto value) { return fmt::format(" {}={}", key, value); }, item);
    }
    text += fmt::format("  {} = {}({}){}\n", writes, op.spec->name, reads, attrs);
  }
  return text;
}

}  // namespace spillway
