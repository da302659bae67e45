// A file that only grows, a record at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace spillway {

class AppendedFile {
 public:
  enum class Begin : std::uint8_t { new_file, any_file };  // new_file: what has this name already is an error

  AppendedFile(std::filesystem::path path, Begin begin);  // throws DeviceError
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;
  ~AppendedFile();

  // Handed to the system before it returns. Throws DeviceError.
  void append(std::string_view bytes);

  // Of a regular file; nothing when it is another kind.
  std::optional<std::int64_t> bytes() const;
  void cut(std::int64_t bytes);  // to this length; throws DeviceError

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace spillway
