#include "telemetry/catalog.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::int64_t most_catalog_bytes = std::int64_t{1} << 46;  // of anything: sums cannot overflow

std::string json_text(std::string_view text) { return json(text).dump(-1, ' ', false, json::error_handler_t::replace); }

template <typename Items, typename Text>
void append_list(std::string& out, std::string_view name, const Items& items, Text&& text_of) {
  out += fmt::format("\"{}\": [", name);
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) out += ',';
    out += text_of(item);
  }
  out += ']';
}

std::string json_of(const CatalogOp& op) {
  return fmt::format("[{},{},{},{},{},{}]", op.kernel, op.phase, op.part, op.layer, op.micro_batch, op.index);
}

std::string json_of(const CatalogBundle& b) {
  return fmt::format("[{},{},{},{}]", static_cast<int>(b.tag), b.state ? 1 : 0, b.bytes, json_text(b.what));
}

std::string json_of(const CatalogInstr& instr) {
  std::string text = fmt::format("[{},{}", static_cast<int>(instr.lane), instr.subject);
  for (const std::int32_t stay : instr.stays) text += fmt::format(",{}", stay);
  return text + ']';
}

std::string json_of(const CatalogStay& stay) {
  return fmt::format("[{},{},{},{},{}]", stay.bundle, stay.bytes, stay.at_entry ? 1 : 0, stay.at_exit ? 1 : 0,
                     static_cast<int>(stay.memory));
}

std::string json_of(const CatalogPlan& plan) {
  std::string text =
      fmt::format("{{\"name\": {}, \"program\": {}, \"predicted_seconds\": {}, \"lower_bound_seconds\": {}, ",
                  json_text(plan.name), plan.program, plan.predicted_seconds, plan.lower_bound_seconds);
  append_list(text, "instrs", plan.instrs, [](const CatalogInstr& instr) { return json_of(instr); });
  text += ", ";
  append_list(text, "stays", plan.stays, [](const CatalogStay& stay) { return json_of(stay); });
  return text + '}';
}

CatalogPlan plan_from(const json& object) {
  CatalogPlan plan;
  plan.name = object.at("name").get<std::string>();
  plan.program = object.at("program").get<std::int32_t>();
  plan.predicted_seconds = object.at("predicted_seconds").get<double>();
  plan.lower_bound_seconds = object.at("lower_bound_seconds").get<double>();
  for (const json& row : object.at("instrs")) {
    CatalogInstr instr{static_cast<EventLane>(row.at(0).get<int>()), row.at(1).get<std::int32_t>()};
    for (std::size_t i = 2; i < row.size(); ++i) instr.stays.push_back(row[i].get<std::int32_t>());
    plan.instrs.push_back(std::move(instr));
  }
  for (const json& row : object.at("stays")) {
    plan.stays.push_back({row.at(0).get<std::int32_t>(), row.at(1).get<std::int64_t>(), row.at(2).get<int>() != 0,
                          row.at(3).get<int>() != 0,
                          row.at(4).get<int>() != 0 ? EventMemory::device : EventMemory::host});
  }
  return plan;
}

// Whoever follows a plan does so by these numbers, unchecked.
void check(const Catalog& catalog) {
  for (const CatalogPlan& plan : catalog.plans) {
    for (const CatalogStay& stay : plan.stays) {
      if (catalog.bundle(stay.bundle) == nullptr || stay.bytes < 0 || stay.bytes > most_catalog_bytes)
        throw UserError("the list of a run's ops is damaged: a stay of bundle {}, {} bytes", stay.bundle, stay.bytes);
    }
    for (const CatalogInstr& instr : plan.instrs) {
      for (const std::int32_t stay : instr.stays) {
        if (stay < 0 || stay >= std::ssize(plan.stays))
          throw UserError("the list of a run's ops is damaged: stay {} of {}", stay, plan.stays.size());
      }
    }
  }
  for (const CatalogBundle& bundle : catalog.bundles) {
    if (bundle.bytes < 0 || bundle.bytes > most_catalog_bytes)
      throw UserError("the list of a run's ops is damaged: a bundle of {} bytes", bundle.bytes);
  }
  for (const std::int64_t bytes : {catalog.arena_bytes, catalog.device_bytes}) {
    if (bytes < 0 || bytes > most_catalog_bytes)
      throw UserError("the list of a run's ops is damaged: pages of {} bytes", bytes);
  }
}

Catalog catalog_from(const json& object) {
  Catalog catalog;
  catalog.arena_bytes = object.at("arena_bytes").get<std::int64_t>();
  catalog.device_bytes = object.at("device_bytes").get<std::int64_t>();
  catalog.words = object.at("words").get<std::vector<std::string>>();
  for (const json& ops : object.at("programs")) {
    std::vector<CatalogOp>& program = catalog.programs.emplace_back();
    for (const json& row : ops) {
      program.push_back({row.at(0).get<std::uint16_t>(), row.at(1).get<std::uint16_t>(), row.at(2).get<std::uint16_t>(),
                         row.at(3).get<std::int32_t>(), row.at(4).get<std::int32_t>(), row.at(5).get<std::int32_t>()});
    }
  }
  for (const json& row : object.at("bundles")) {
    const auto tag = std::clamp(row.at(0).get<int>(), 0, static_cast<int>(memory_tag_count) - 1);
    catalog.bundles.push_back({static_cast<MemoryTag>(tag), row.at(1).get<int>() != 0, row.at(2).get<std::int64_t>(),
                               row.at(3).get<std::string>()});
  }
  for (const json& plan : object.at("plans")) catalog.plans.push_back(plan_from(plan));
  check(catalog);
  return catalog;
}

std::string_view word(const Catalog& catalog, std::uint16_t at) {
  return at < catalog.words.size() ? std::string_view(catalog.words[at]) : std::string_view("?");
}

}  // namespace

std::uint16_t Catalog::intern(std::string_view word) {
  const auto found = std::find(words.begin(), words.end(), word);
  if (found != words.end()) return static_cast<std::uint16_t>(found - words.begin());
  SPILLWAY_CHECK(words.size() < 65536, "{} words", words.size());
  words.emplace_back(word);
  return static_cast<std::uint16_t>(words.size() - 1);
}

const CatalogPlan* Catalog::plan(std::uint8_t plan) const { return plan < plans.size() ? &plans[plan] : nullptr; }

const CatalogOp* Catalog::op(std::uint8_t plan_number, std::int32_t op) const {
  const CatalogPlan* of = plan(plan_number);
  const auto program = of == nullptr ? programs.size() : static_cast<std::size_t>(of->program);
  if (program >= programs.size() || op < 0 || static_cast<std::size_t>(op) >= programs[program].size()) return nullptr;
  return &programs[program][static_cast<std::size_t>(op)];
}

const CatalogBundle* Catalog::bundle(std::int32_t bundle) const {
  const auto at = static_cast<std::size_t>(bundle);
  return bundle >= 0 && at < bundles.size() ? &bundles[at] : nullptr;
}

std::string_view Catalog::phase_of(std::uint8_t plan_number, std::int32_t number) const {
  const CatalogOp* of = op(plan_number, number);
  return of == nullptr ? std::string_view() : word(*this, of->phase);
}

std::string Catalog::describe_op(std::uint8_t plan_number, std::int32_t number) const {
  const CatalogOp* of = op(plan_number, number);
  if (of == nullptr) return fmt::format("op {}", number);
  return fmt::format("{} of {}", word(*this, of->kernel), describe(*this, *of));
}

std::string Catalog::describe_bundle(std::int32_t number) const {
  const CatalogBundle* of = bundle(number);
  return of == nullptr ? fmt::format("bundle {}", number) : fmt::format("{} ({})", of->what, format_bytes(of->bytes));
}

std::string Catalog::describe_move(EventLane lane, std::int32_t number) const {
  const std::string_view verb = lane == EventLane::read ? "read" : (lane == EventLane::write ? "write" : name_of(lane));
  return fmt::format("the {} of {}", verb, describe_bundle(number));
}

std::string describe(const Catalog& catalog, const CatalogOp& op) {
  std::string text(word(catalog, op.phase));
  if (op.layer >= 0) text += fmt::format(" layer {}", op.layer);
  if (const std::string_view part = word(catalog, op.part); !part.empty()) text += fmt::format(" {}", part);
  if (op.index > 0) text += fmt::format("#{}", op.index);
  if (op.micro_batch >= 0) text += fmt::format(" micro-batch {}", op.micro_batch);
  return text;
}

std::string json_of(const Catalog& catalog) {
  std::string text = fmt::format("{{\"version\": {}, \"arena_bytes\": {}, \"device_bytes\": {}, ", event_version,
                                 catalog.arena_bytes, catalog.device_bytes);
  append_list(text, "words", catalog.words, [](const std::string& word) { return json_text(word); });
  text += ",\n";
  append_list(text, "programs", catalog.programs, [](const std::vector<CatalogOp>& ops) {
    std::string list = "[";
    for (std::size_t i = 0; i < ops.size(); ++i) list += (i == 0 ? "" : ",") + json_of(ops[i]);
    return list + ']';
  });
  text += ",\n";
  append_list(text, "bundles", catalog.bundles, [](const CatalogBundle& bundle) { return json_of(bundle); });
  text += ",\n";
  append_list(text, "plans", catalog.plans, [](const CatalogPlan& plan) { return json_of(plan); });
  return text + "}\n";
}

Catalog catalog_from_json(std::string_view text) {
  try {
    const json object = json::parse(text);
    if (const auto version = object.at("version").get<std::uint32_t>(); version != event_version)
      throw UserError("the list of a run's ops has version {}, this spillway reads {}", version, event_version);
    return catalog_from(object);
  } catch (const json::exception& error) {
    throw UserError("the list of a run's ops cannot be read ({})", error.what());
  }
}

}  // namespace spillway
