// The command `spillway`.
#pragma once

#include <string>
#include <vector>

namespace spillway {

// Parses the arguments (without the program's name), calls the verb, and returns the exit code of ExitCode. Every
// failure is one sentence on stderr. Nothing is thrown.
int run_command_line(std::vector<std::string> arguments);

// Of the exception that is being handled: writes that sentence, and returns the exit code.
int tell_failure();

}  // namespace spillway
