#include <csignal>
#include <memory>

#include "cli/config_file.h"
#include "cli/stop_signals.h"
#include "cli/train_arguments.h"
#include "cli/verbs.h"
#include "session/session.h"
#include "telemetry/console.h"

namespace spillway {
namespace {

// The console, which leaves the options of the run in its folder before the first step. Memory, dtype and threads are
// what the run took, so that its plan can be made again.
class RunConsole : public Console {
 public:
  RunConsole(const TrainOptions& options, bool quiet)
      : Console(stdout, stderr, style_of(quiet), options.logging_steps), options_(options) {}

  void started(const RunSummary& run) override {
    options_.memory_bytes = run.budget_bytes;
    options_.dtype = run.dtype;
    options_.threads = run.threads;
    write_run_config(options_);
    Console::started(run);
  }

 private:
  static ConsoleStyle style_of(bool quiet) {
    ConsoleStyle style = ConsoleStyle::of(stdout);
    style.quiet = quiet;
    return style;
  }

  TrainOptions options_;
};

ExitCode train(TrainArguments& arguments, bool quiet) {
  const TrainOptions& options = arguments.read();
  if (arguments.print_config_wanted()) {
    print(arguments.config_text());
    return ExitCode::ok;
  }
  take_stop_signals();  // before anything that takes time
  validate(options, TrainUse::train);
  std::signal(SIGPIPE, SIG_IGN);  // a reader of the progress that goes away must not end the run
  RunConsole console(options, quiet);
  run_train(options, console, &run_control());
  return ExitCode::ok;
}

}  // namespace

Verb add_train(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("train", "train a model folder on text and write a new folder");
  auto arguments = std::make_shared<TrainArguments>(*verb);
  auto quiet = std::make_shared<bool>(false);
  verb->add_flag("--quiet", *quiet, "print nothing but errors, and steps that take far too long");
  return {verb, [arguments, quiet] { return train(*arguments, *quiet); }};
}

}  // namespace spillway
