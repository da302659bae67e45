#include "store/run_id.h"

#include <sys/random.h>

#include <cerrno>

#include "base/error.h"

namespace spillway {

RunId RunId::random() {
  RunId id;
  ssize_t got = -1;
  do {
    got = getrandom(id.bytes.data(), id.bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(id.bytes.size())) return id;
  throw DeviceError("the kernel gave no random bytes for the id of the run ({}): try again", errno_text(errno));
}

std::optional<RunId> RunId::parse(std::string_view text) {
  RunId id;
  if (text.size() != 2 * id.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return std::nullopt;
    const int value = digit ? c - '0' : c - 'a' + 10;
    id.bytes[i / 2] = static_cast<std::uint8_t>(id.bytes[i / 2] << 4 | value);
  }
  return id;
}

std::string RunId::text() const {
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace spillway
