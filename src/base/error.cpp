#include "base/error.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace spillway {

std::string errno_text(int error) { return std::generic_category().message(error); }

void check_failed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "spillway: internal error at %s:%d: %s\n", file, line, what.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace spillway
