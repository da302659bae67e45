#include <fcntl.h>

#include <csignal>
#include <string>
#include <vector>

#include "cli/command_line.h"

namespace {

// Started without stdin, stdout or stderr, the first files opened would get their numbers, and messages would be
// written into them. What stands in is opened the wrong way round, so that output still fails and is noticed.
void occupy_standard_streams() {
  for (const int stream : {0, 1, 2}) {
    if (::fcntl(stream, F_GETFD) < 0) static_cast<void>(::open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY));
  }
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows past its limit is an error of writing, and a sentence
  return spillway::run_command_line(std::vector<std::string>(argv + 1, argv + argc));
}
