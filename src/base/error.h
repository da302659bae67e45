// Errors by kind. A user can mend a UserError or a DoesNotFit; a DeviceError comes from I/O or an accelerator; a failed
// SPILLWAY_CHECK is a bug of ours and ends the process with both values printed.
//
// Each message is one sentence that names what, where and what to do, without a trailing full stop.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace spillway {

// Process exit codes, documented in the README.
enum class ExitCode : int { ok = 0, internal = 1, user = 2, does_not_fit = 3, device = 4 };

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Bad input: a file, a key or a value. Exit code 2.
class UserError : public Error {
 public:
  template <typename... Args>
  explicit UserError(fmt::format_string<Args...> format, Args&&... args)
      : Error(ExitCode::user, fmt::format(format, std::forward<Args>(args)...)) {}
};

// The budget does not hold what was asked for. Exit code 3.
class DoesNotFit : public Error {
 public:
  template <typename... Args>
  explicit DoesNotFit(fmt::format_string<Args...> format, Args&&... args)
      : Error(ExitCode::does_not_fit, fmt::format(format, std::forward<Args>(args)...)) {}
};

// Input/output or a device failed. Exit code 4.
class DeviceError : public Error {
 public:
  template <typename... Args>
  explicit DeviceError(fmt::format_string<Args...> format, Args&&... args)
      : Error(ExitCode::device, fmt::format(format, std::forward<Args>(args)...)) {}
};

// What errno says, "No space left on device". Any thread.
std::string errno_text(int error);

// Prints the broken invariant and aborts.
[[noreturn]] void check_failed(const char* file, int line, const std::string& what);

}  // namespace spillway

// Always on. `SPILLWAY_CHECK(a <= b, "page {} of {}", a, b)`.
#define SPILLWAY_CHECK(condition, ...)                                                          \
  do {                                                                                          \
    if (!(condition)) [[unlikely]] {                                                            \
      ::spillway::check_failed(__FILE__, __LINE__, #condition ": " + fmt::format(__VA_ARGS__)); \
    }                                                                                           \
  } while (false)
