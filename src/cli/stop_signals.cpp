#include "cli/stop_signals.h"

#include <unistd.h>

#include <csignal>

namespace spillway {
namespace {

constexpr int exit_by_signal = 128;  // as shells report it

extern "C" void on_stop(int signal) {
  if (run_control().stop.exchange(signal) != 0) ::_exit(exit_by_signal + signal);
}

extern "C" void on_commit(int) { run_control().commit = true; }

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

constinit RunControl control;

}  // namespace

RunControl& run_control() { return control; }

void take_stop_signals() {
  handle(SIGINT, on_stop);
  handle(SIGTERM, on_stop);
  handle(SIGUSR1, on_commit);
}

}  // namespace spillway
