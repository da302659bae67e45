#include "text/tokenizer_fields.h"

#include <algorithm>

#include "base/error.h"

namespace spillway {

using nlohmann::json;

Fields::Fields(const json& value, std::string where) : value_(&value), where_(std::move(where)) {
  if (!value.is_object()) throw UserError("{} must be an object, not {}", where_, value.type_name());
}

void Fields::wrong(const std::string& key, std::string_view wanted) const {
  const auto found = value_->find(key);
  if (found == value_->end()) throw UserError("{}.{} is missing; it must be {}", where_, key, wanted);
  throw UserError("{}.{} must be {}, not {}", where_, key, wanted, found->type_name());
}

bool Fields::has(const std::string& key) const {
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

const json& Fields::value(const std::string& key) const {
  if (!has(key)) wrong(key, "present");
  return *value_->find(key);
}

Fields Fields::object(const std::string& key) const {
  if (!has(key)) wrong(key, "an object");
  return Fields(value(key), where_ + "." + key);
}

std::vector<Fields> Fields::objects(const std::string& key) const {
  if (!has(key) || !value(key).is_array()) wrong(key, "an array");
  const json& array = value(key);
  if (array.size() > kMostElements) {
    throw UserError("{}.{} has {} elements, more than the {} supported; use another tokenizer", where_, key,
                    array.size(), kMostElements);
  }
  std::vector<Fields> all;
  for (std::size_t i = 0; i < array.size(); ++i) all.emplace_back(array[i], fmt::format("{}.{}[{}]", where_, key, i));
  return all;
}

const std::string& Fields::text(const std::string& key) const {
  if (!has(key) || !value(key).is_string()) wrong(key, "a string");
  return value(key).get_ref<const std::string&>();
}

bool Fields::flag(const std::string& key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!value(key).is_boolean()) wrong(key, "true or false");
  return value(key).get<bool>();
}

std::uint32_t Fields::count(const std::string& key, std::uint32_t largest) const {
  const bool number = has(key) && value(key).is_number_unsigned();
  if (!number || value(key).get<std::uint64_t>() > largest) wrong(key, fmt::format("a number from 0 to {}", largest));
  return value(key).get<std::uint32_t>();
}

Pattern Fields::pattern(const std::string& key) const {
  const Fields inner = object(key);
  inner.only({"String", "Regex"});
  if (inner.has("Regex")) return Pattern::regex(inner.text("Regex"), inner.where());
  const std::string& text = inner.text("String");
  if (text.empty()) refuse("an empty " + key);
  return Pattern::literal(text);
}

void Fields::only(std::initializer_list<std::string_view> known) const {
  for (const auto& [key, unused] : value_->items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) refuse("the field \"" + key + "\"");
  }
}

void Fields::refuse(const std::string& what) const {
  throw UserError("{}: {} is not supported; use another tokenizer", where_, what);
}

}  // namespace spillway
