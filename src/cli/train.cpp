#include <csignal>
#include <memory>

#include "cli/train_arguments.h"
#include "cli/verbs.h"
#include "session/session.h"
#include "telemetry/console.h"

namespace spillway {
namespace {

ExitCode train(TrainArguments& arguments) {
  const TrainOptions& options = arguments.read();
  if (arguments.print_config_wanted()) {
    print(arguments.config_text());
    return ExitCode::ok;
  }
  validate(options, TrainUse::train);
  std::signal(SIGPIPE, SIG_IGN);  // a reader of the progress that goes away must not end the run
  Console console(stdout, stderr, ConsoleStyle::of(stdout), options.logging_steps);
  run_train(options, console);
  return ExitCode::ok;
}

}  // namespace

Verb add_train(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("train", "train a model folder on text and write a new folder");
  auto arguments = std::make_shared<TrainArguments>(*verb);
  return {verb, [arguments] { return train(*arguments); }};
}

}  // namespace spillway
