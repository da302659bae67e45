// The verbs of the command line, one file each: every one adds its subcommand and says what to call when it was chosen.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace spillway {

struct Verb {
  CLI::App* app = nullptr;
  std::function<ExitCode()> run;  // reads what was parsed; throws Error
};

Verb add_init(CLI::App& app);
Verb add_train(CLI::App& app);
Verb add_plan(CLI::App& app);
Verb add_eval(CLI::App& app);
Verb add_generate(CLI::App& app);
Verb add_tokenize(CLI::App& app);
Verb add_inspect(CLI::App& app);
Verb add_probe(CLI::App& app);
Verb add_doctor(CLI::App& app);
Verb add_checkpoint(CLI::App& app);
Verb add_report(CLI::App& app);

// To stdout; throws DeviceError when it cannot be written.
void print(std::string_view text);

// To stderr, one line each.
void print_notes(const std::vector<std::string>& notes);

}  // namespace spillway
