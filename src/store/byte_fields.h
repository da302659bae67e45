// Little-endian fields of the blocks that the store writes. A reader never goes beyond its bytes: what is missing reads
// as zero and is noted.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace spillway {

class FieldWriter {
 public:
  explicit FieldWriter(std::span<std::byte> into) : into_(into) {}

  template <std::unsigned_integral T>
  void put(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) put_byte(static_cast<std::byte>(value >> (8 * i) & 0xffU));
  }
  void put_bytes(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) put_byte(byte);
  }
  void put_text(std::string_view text) { put_bytes(std::as_bytes(std::span(text))); }
  std::size_t size() const { return size_; }
  bool overran() const { return overran_; }

 private:
  void put_byte(std::byte byte) {
    if (size_ < into_.size()) {
      into_[size_++] = byte;
    } else {
      overran_ = true;
    }
  }

  std::span<std::byte> into_;
  std::size_t size_ = 0;
  bool overran_ = false;
};

class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> from) : from_(from) {}

  template <std::unsigned_integral T>
  T get() {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(get_byte()) << (8 * i)));
    }
    return value;
  }
  void get_bytes(std::span<std::byte> into) {
    for (std::byte& byte : into) byte = get_byte();
  }
  bool overran() const { return overran_; }

 private:
  std::byte get_byte() {
    if (at_ < from_.size()) return from_[at_++];
    overran_ = true;
    return std::byte{0};
  }

  std::span<const std::byte> from_;
  std::size_t at_ = 0;
  bool overran_ = false;
};

}  // namespace spillway
