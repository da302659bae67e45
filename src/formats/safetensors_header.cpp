#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "base/error.h"
#include "formats/safetensors.h"
#include "formats/shown.h"

namespace spillway {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats here are little-endian and read as they are");

struct StoredType {
  std::string_view name;
  std::int64_t bytes;
  std::optional<DType> dtype;
};

constexpr std::array stored_types{
    StoredType{"F32", 4, DType::f32},       StoredType{"BF16", 2, DType::bf16},
    StoredType{"F16", 2, DType::f16},       StoredType{"F64", 8, DType::f64},
    StoredType{"I64", 8, DType::i64},       StoredType{"I32", 4, DType::i32},
    StoredType{"U32", 4, DType::u32},       StoredType{"U16", 2, DType::u16},
    StoredType{"U8", 1, DType::u8},         StoredType{"I8", 1, std::nullopt},
    StoredType{"BOOL", 1, std::nullopt},    StoredType{"I16", 2, std::nullopt},
    StoredType{"U64", 8, std::nullopt},     StoredType{"C64", 8, std::nullopt},
    StoredType{"F8_E5M2", 1, std::nullopt}, StoredType{"F8_E4M3", 1, std::nullopt},
    StoredType{"F8_E8M0", 1, std::nullopt},
};

const StoredType* find_type(std::string_view name) {
  const auto* found = std::ranges::find(stored_types, name, &StoredType::name);
  return found == stored_types.end() ? nullptr : found;
}

// Reads the header event by event, so that duplicate keys are seen and nothing but the entries is kept.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string_view file) : file_(file) {}

  SafetensorsHeader take() { return std::move(header_); }
  // The end of each tensor's bytes, in the order of the entries.
  const std::vector<std::int64_t>& ends() const { return ends_; }

  bool start_object(std::size_t) override {
    if (place_ == Place::begin) return enter(Place::header);
    if (place_ == Place::header && key_ == "__metadata__") return enter(Place::metadata);
    if (place_ == Place::header) {
      seen_ = {};
      header_.entries.push_back({.name = key_, .stored_dtype = {}, .shape = {}});
      ends_.push_back(0);
      return enter(Place::tensor);
    }
    refuse_value();
  }
  bool end_object() override {
    if (place_ == Place::header) return enter(Place::end);
    if (place_ == Place::tensor && !(seen_.dtype && seen_.shape && seen_.offsets == 2)) {
      throw UserError("{}: tensor '{}' lacks dtype, shape or two data_offsets", file_, shown(entry().name));
    }
    return enter(Place::header);
  }
  bool key(std::string& name) override {
    key_ = std::move(name);
    if (place_ == Place::header && key_ == "__metadata__" && std::exchange(metadata_seen_, true)) refuse_twice();
    if (place_ == Place::metadata && header_.metadata.contains(key_)) refuse_twice();
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ == Place::tensor && key_ == "shape") {
      if (std::exchange(seen_.shape, true)) refuse_twice();
      return enter(Place::shape);
    }
    if (place_ == Place::tensor && key_ == "data_offsets") {
      if (std::exchange(seen_.offsets_array, true)) refuse_twice();
      return enter(Place::offsets);
    }
    refuse_value();
  }
  bool end_array() override { return enter(Place::tensor); }
  bool string(std::string& text) override {
    if (place_ == Place::metadata) {
      header_.metadata.emplace(key_, std::move(text));
      return true;
    }
    if (place_ != Place::tensor || key_ != "dtype") refuse_value();
    if (std::exchange(seen_.dtype, true)) refuse_twice();
    if (find_type(text) == nullptr) {
      throw UserError("{}: tensor '{}' has dtype '{}', which is not known", file_, shown(entry().name), shown(text));
    }
    entry().stored_dtype = std::move(text);
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) refuse_value();
    return take_number(static_cast<std::int64_t>(value));
  }
  bool number_integer(number_integer_t value) override {
    if (value < 0) refuse_value();
    return take_number(value);
  }
  bool number_float(number_float_t, const string_t&) override { refuse_value(); }
  bool null() override { refuse_value(); }
  bool boolean(bool) override { refuse_value(); }
  bool binary(binary_t&) override { refuse_value(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw UserError("{}: the header is not JSON from its byte {} on; the file is damaged or not safetensors", file_,
                    position);
  }

 private:
  enum class Place : std::uint8_t { begin, header, metadata, tensor, shape, offsets, end };
  struct Seen {
    bool dtype = false;
    bool shape = false;
    bool offsets_array = false;
    int offsets = 0;
  };

  SafetensorsEntry& entry() { return header_.entries.back(); }
  bool enter(Place place) {
    place_ = place;
    return true;
  }
  bool take_number(std::int64_t value) {
    if (place_ == Place::shape && entry().shape.size() < 64) {
      entry().shape.push_back(value);
      return true;
    }
    if (place_ != Place::offsets || seen_.offsets == 2) refuse_value();
    if (seen_.offsets++ == 0) {
      entry().offset = value;
    } else {
      ends_.back() = value;
    }
    return true;
  }
  [[noreturn]] void refuse_value() const {
    throw UserError("{}: the header has a value that cannot stand at '{}'{}", file_, shown(key_),
                    place_ > Place::metadata && !header_.entries.empty()
                        ? fmt::format(" of tensor '{}'", shown(header_.entries.back().name))
                        : "");
  }
  [[noreturn]] void refuse_twice() const { throw UserError("{}: the header names '{}' twice", file_, shown(key_)); }

  std::string_view file_;
  SafetensorsHeader header_;
  std::vector<std::int64_t> ends_;
  std::string key_;
  Place place_ = Place::begin;
  Seen seen_;
  bool metadata_seen_ = false;
};

// Bytes of dtype and shape; nothing when they overflow.
std::optional<std::int64_t> bytes_of(const SafetensorsEntry& entry) {
  std::int64_t bytes = find_type(entry.stored_dtype)->bytes;
  if (std::ranges::find(entry.shape, 0) != entry.shape.end()) return 0;
  for (const std::int64_t size : entry.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

void check_extent(SafetensorsEntry& entry, std::int64_t end, std::int64_t data_bytes, std::string_view file) {
  const std::optional<std::int64_t> bytes = bytes_of(entry);
  if (end < entry.offset || end > data_bytes) {
    throw UserError(
        "{}: tensor '{}' lies at bytes {} to {} of the data, but the file has {} bytes of data; it is "
        "truncated or damaged",
        file, shown(entry.name), entry.offset, end, data_bytes);
  }
  if (bytes != end - entry.offset) {
    throw UserError("{}: tensor '{}' of dtype {} and shape [{}] does not take the {} bytes that its data_offsets give",
                    file, shown(entry.name), entry.stored_dtype, fmt::join(entry.shape, ", "), end - entry.offset);
  }
  entry.bytes = *bytes;
}

void check_names(const std::vector<SafetensorsEntry>& entries, std::string_view file) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) names.push_back(entry.name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
    throw UserError("{}: the header names tensor '{}' twice", file, shown(*twice));
  }
}

void check_layout(const std::vector<SafetensorsEntry>& by_offset, std::int64_t data_bytes, std::string_view file) {
  std::int64_t end = 0;
  for (const SafetensorsEntry& entry : by_offset) {
    if (entry.offset != end) {
      throw UserError(
          "{}: tensor '{}' begins at byte {} of the data, but the one before ends at {}; the file is "
          "damaged",
          file, shown(entry.name), entry.offset, end);
    }
    end += entry.bytes;
  }
  if (end != data_bytes) {
    throw UserError("{}: the tensors take {} bytes, but the file has {} bytes of data; it is damaged", file, end,
                    data_bytes);
  }
}

}  // namespace

std::optional<DType> SafetensorsEntry::dtype() const {
  const StoredType* type = find_type(stored_dtype);
  return type == nullptr ? std::nullopt : type->dtype;
}

std::string_view stored_name_of(DType dtype) {
  return std::ranges::find(stored_types, std::optional(dtype), &StoredType::dtype)->name;
}

std::int64_t stored_element_bytes(std::string_view stored_dtype) {
  const StoredType* type = find_type(stored_dtype);
  SPILLWAY_CHECK(type != nullptr, "dtype '{}'", stored_dtype);
  return type->bytes;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes, std::string_view file) {
  HeaderReader reader(file);
  nlohmann::json::sax_parse(json, &reader);
  SafetensorsHeader header = reader.take();
  for (std::size_t i = 0; i < header.entries.size(); ++i) {
    check_extent(header.entries[i], reader.ends()[i], data_bytes, file);
  }
  check_names(header.entries, file);
  // Empty tensors share the offset of the one after them and come first.
  std::ranges::stable_sort(header.entries, {}, [](const SafetensorsEntry& e) { return std::pair(e.offset, e.bytes); });
  check_layout(header.entries, data_bytes, file);
  return header;
}

std::int64_t safetensors_header_bytes(std::span<const std::byte> begin, std::int64_t file_bytes,
                                      std::string_view file) {
  std::uint64_t length = 0;
  if (begin.size() < sizeof length || file_bytes < std::int64_t{sizeof length}) {
    throw UserError("{}: {} bytes are too few for a safetensors file", file, file_bytes);
  }
  std::memcpy(&length, begin.data(), sizeof length);
  if (length > static_cast<std::uint64_t>(safetensors_header_limit_bytes)) {
    throw UserError(
        "{}: the header claims {} bytes, more than the {} that the format allows; it is damaged or not a "
        "safetensors file",
        file, length, safetensors_header_limit_bytes);
  }
  if (length > static_cast<std::uint64_t>(file_bytes) - sizeof length) {
    throw UserError("{}: the header claims {} bytes, but the file has only {}; it is truncated or damaged", file,
                    length, file_bytes);
  }
  return static_cast<std::int64_t>(length);
}

SafetensorsHeader parse_safetensors_begin(std::span<const std::byte> begin, std::int64_t file_bytes,
                                          std::string_view file) {
  const std::int64_t header_bytes = safetensors_header_bytes(begin, file_bytes, file);
  if (static_cast<std::int64_t>(begin.size()) < 8 + header_bytes) {
    throw UserError("{}: the header ends early; the file is truncated", file);
  }
  const std::string_view json(reinterpret_cast<const char*>(begin.data()) + 8, static_cast<std::size_t>(header_bytes));
  return parse_safetensors_header(json, file_bytes - 8 - header_bytes, file);
}

}  // namespace spillway
