// Typed reading of a small JSON object of tokenizer.json: an error names the file and the field.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_pattern.h"

namespace spillway {

class Fields {
 public:
  // `where` is the file and the path of the object in it. Throws UserError if `value` is not an object. The value must
  // outlive this.
  Fields(const nlohmann::json& value, std::string where);

  const std::string& where() const { return where_; }
  bool has(const std::string& key) const;  // present and not null
  const nlohmann::json& value(const std::string& key) const;
  Fields object(const std::string& key) const;
  // The elements of an array of objects, at most kMostElements.
  std::vector<Fields> objects(const std::string& key) const;
  const std::string& text(const std::string& key) const;
  bool flag(const std::string& key, bool otherwise) const;
  // Between 0 and `largest`.
  std::uint32_t count(const std::string& key, std::uint32_t largest) const;
  // {"String": …} or {"Regex": …}.
  Pattern pattern(const std::string& key) const;

  // Throws UserError if there is a field that is not among these: it may change ids.
  void only(std::initializer_list<std::string_view> known) const;
  [[noreturn]] void refuse(const std::string& what) const;  // "<where>: <what> is not supported; …"

 private:
  static constexpr std::size_t kMostElements = 1000;
  [[noreturn]] void wrong(const std::string& key, std::string_view wanted) const;

  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace spillway
