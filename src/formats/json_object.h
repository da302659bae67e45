// An object of a JSON file with typed access; errors name the file, the key and the value.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

class JsonObject {
 public:
  // `json` must be an object and outlive this.
  JsonObject(const nlohmann::json& json, std::string file) : json_(&json), file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  const nlohmann::json& json() const { return *json_; }
  // Whether the key is there and not null.
  bool has(std::string_view key) const { return find(key) != nullptr; }
  // Null when the key is absent or null.
  const nlohmann::json* find(std::string_view key) const;

  // A whole number from 1 to `limit`. Without the key: `otherwise`, or UserError.
  std::int64_t size(std::string_view key, std::int64_t limit, std::optional<std::int64_t> otherwise = {}) const;
  // A finite number above 0.
  double positive(std::string_view key, std::optional<double> otherwise = {}) const;
  bool boolean(std::string_view key, bool otherwise) const;
  std::string string(std::string_view key, std::string_view otherwise) const;
  std::optional<JsonObject> object(std::string_view key) const;

  // "FILE: KEY is VALUE, but WHAT", thrown.
  [[noreturn]] void refuse(std::string_view key, std::string_view what) const;

 private:
  const nlohmann::json* json_;
  std::string file_;
};

// What nlohmann::json found wrong, without its own numbering of faults.
std::string text_of(const nlohmann::json::exception& fault);

// Null, false, 0, 1, "", [] and {}: values that say "nothing special".
bool is_trivial(const nlohmann::json& value);

}  // namespace spillway
