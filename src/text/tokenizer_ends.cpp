#include "text/tokenizer_ends.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

#include "base/error.h"
#include "formats/json_object.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 4> kKeys = {"bos_token", "eos_token", "bos_token_id", "eos_token_id"};

// The four fields of a file's object, and nothing else of it: tokenizer_config.json may hold thousands of tokens.
json read_fields(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return json::object();
  std::ifstream in(file, std::ios::binary);
  if (!in) throw UserError("{} cannot be read; check its permissions", file.string());
  const auto wanted = [](int depth, json::parse_event_t event, json& parsed) {
    if (event != json::parse_event_t::key || depth != 1) return true;
    return std::find(kKeys.begin(), kKeys.end(), parsed.get_ref<const std::string&>()) != kKeys.end();
  };
  try {
    json fields = json::parse(in, wanted);
    if (!fields.is_object()) throw UserError("{} must hold an object, not {}", file.string(), fields.type_name());
    return fields;
  } catch (const json::parse_error& e) {
    throw UserError("{} is not valid JSON ({}); download or write it again", file.string(), text_of(e));
  }
}

// A name, or an object with the name in "content".
std::optional<TokenId> by_name(const json& fields, const std::string& key, const std::string& file,
                               const FindToken& find) {
  if (!fields.contains(key) || fields[key].is_null()) return std::nullopt;
  const json& value = fields[key];
  const json& name = value.is_object() && value.contains("content") ? value["content"] : value;
  if (!name.is_string()) throw UserError("{}: {} must be a token's text, not {}", file, key, value.type_name());
  const TokenId id = find(name.get_ref<const std::string&>());
  return id == kNoToken ? std::nullopt : std::optional(id);
}

// An id, or a list of ids. Configurations often keep a begin token of another tokenizer, beyond the ids of this one.
std::optional<TokenId> by_id(const json& fields, const std::string& key, const std::string& file,
                             std::int64_t id_limit) {
  if (!fields.contains(key) || fields[key].is_null()) return std::nullopt;
  if (fields[key].is_array() && fields[key].empty()) return std::nullopt;
  const json& value = fields[key].is_array() ? fields[key][0] : fields[key];
  if (!value.is_number_unsigned()) throw UserError("{}: {} must be an id, not {}", file, key, value.dump());
  if (value.get<std::uint64_t>() >= static_cast<std::uint64_t>(id_limit)) {
    if (key == "bos_token_id") return std::nullopt;
    throw UserError("{}: {} is {}, but the tokenizer's ids end at {}", file, key, value.dump(), id_limit - 1);
  }
  return value.get<TokenId>();
}

// Of one id or a list; what is none never comes, and ends nothing.
std::vector<TokenId> stops_of(const json& fields) {
  std::vector<TokenId> stops;
  const json ids = fields.value("eos_token_id", json::array());
  for (const json& id : ids.is_array() ? ids : json::array({ids})) {
    if (id.is_number_unsigned() && id.get<std::uint64_t>() < kNoToken) stops.push_back(id.get<TokenId>());
  }
  return stops;
}

template <std::size_t N>
std::optional<TokenId> first_known(const std::array<std::string_view, N>& names, const FindToken& find) {
  for (const std::string_view name : names) {
    if (find(name) != kNoToken) return find(name);
  }
  return std::nullopt;
}

}  // namespace

EndTokens well_known_end_tokens(const FindToken& find) {
  constexpr std::array<std::string_view, 3> kBegins = {"<|begin_of_text|>", "<s>", "<bos>"};
  constexpr std::array<std::string_view, 5> kEnds = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<|im_end|>", "<eos>"};
  return {first_known(kBegins, find), first_known(kEnds, find), {}};
}

EndTokens read_end_tokens(const std::filesystem::path& folder, const FindToken& find, std::int64_t id_limit) {
  EndTokens ends;
  const auto take = [](std::optional<TokenId> found, std::optional<TokenId>& wanted) {
    if (!wanted) wanted = found;
  };
  for (const char* name : {"tokenizer_config.json", "generation_config.json", "config.json"}) {
    const std::string file = (folder / name).string();
    const json fields = read_fields(file);
    if (file.ends_with("generation_config.json")) ends.stops = stops_of(fields);
    take(by_name(fields, "bos_token", file, find), ends.begin);
    take(by_name(fields, "eos_token", file, find), ends.end);
    if (!ends.begin) take(by_id(fields, "bos_token_id", file, id_limit), ends.begin);
    if (!ends.end) take(by_id(fields, "eos_token_id", file, id_limit), ends.end);
  }
  const EndTokens known = well_known_end_tokens(find);
  take(known.begin, ends.begin);
  take(known.end, ends.end);
  return ends;
}

}  // namespace spillway
