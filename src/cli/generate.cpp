#include <memory>

#include "cli/flags.h"
#include "cli/verbs.h"
#include "session/session.h"

namespace spillway {
namespace {

struct GenerateArguments {
  explicit GenerateArguments(CLI::App& app) : flags(app, options_of(options)) {}
  GenerateOptions options;
  Flags flags;
};

ExitCode generate(GenerateArguments& arguments) {
  arguments.flags.apply();
  validate(arguments.options);
  // The prompt is shown once the model is known to load: with the first text that comes.
  bool started = false;
  const auto start = [&] {
    if (!started) print(arguments.options.prompt);
    started = true;
  };
  const GenerateReport report = run_generate(arguments.options, [&](std::string_view text) {
    start();
    print(text);
  });
  start();
  print("\n");
  print_notes(report.notes);
  return ExitCode::ok;
}

}  // namespace

Verb add_generate(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("generate", "continue a text");
  auto arguments = std::make_shared<GenerateArguments>(*verb);
  return {verb, [arguments] { return generate(*arguments); }};
}

}  // namespace spillway
