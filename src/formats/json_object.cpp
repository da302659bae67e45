#include "formats/json_object.h"

#include <cmath>

#include "base/error.h"
#include "formats/shown.h"

namespace spillway {
namespace {

// Scalars as written; containers by kind, since they may be of any size and depth.
std::string value_text(const nlohmann::json& value) {
  if (value.is_string()) return fmt::format("'{}'", shown(value.get_ref<const std::string&>()));
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return value.dump();
}

}  // namespace

const nlohmann::json* JsonObject::find(std::string_view key) const {
  const auto found = json_->find(key);
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

void JsonObject::refuse(std::string_view key, std::string_view what) const {
  const nlohmann::json* value = find(key);
  throw UserError("{}: {} is {}, but {}", file_, shown(key), value == nullptr ? "missing" : value_text(*value), what);
}

std::int64_t JsonObject::size(std::string_view key, std::int64_t limit, std::optional<std::int64_t> otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr) refuse(key, "a model needs it");
  const bool in_range = value->is_number_integer() && *value >= 1 && *value <= limit;
  if (!in_range) refuse(key, fmt::format("it must be a whole number from 1 to {}", limit));
  return value->get<std::int64_t>();
}

double JsonObject::positive(std::string_view key, std::optional<double> otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_number()) refuse(key, "it must be a number above 0");
  const auto number = value->get<double>();
  if (!(number > 0) || !std::isfinite(number)) refuse(key, "it must be a number above 0");
  return number;
}

bool JsonObject::boolean(std::string_view key, bool otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(key, "it must be true or false");
  return value->get<bool>();
}

std::string JsonObject::string(std::string_view key, std::string_view otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::string(otherwise);
  if (!value->is_string()) refuse(key, "it must be a string");
  return value->get<std::string>();
}

std::optional<JsonObject> JsonObject::object(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) refuse(key, "it must be an object");
  return JsonObject(*value, fmt::format("{}: {}", file_, key));
}

std::string text_of(const nlohmann::json::exception& fault) {
  const std::string_view what = fault.what();
  const std::size_t numbering = what.find("] ");
  return std::string(numbering == what.npos ? what : what.substr(numbering + 2));
}

bool is_trivial(const nlohmann::json& value) {
  if (value.is_number()) {
    const auto number = value.get<double>();
    return number == 0 || number == 1;
  }
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty();
}

}  // namespace spillway
