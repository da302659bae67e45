// run.yaml: any text is either read or refused with a UserError, and what was read prints and reads back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "cli/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  TrainOptions options;
  try {
    parse_config({reinterpret_cast<const char*>(data), size}, "run.yaml", options_of(options));
  } catch (const UserError&) {
    return 0;
  }
  TrainOptions defaults;
  TrainOptions again;
  parse_config(print_config(options_of(options), options_of(defaults)), "printed", options_of(again));
  if (!(again == options)) std::abort();
  return 0;
}
