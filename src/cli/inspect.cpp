#include <memory>

#include "cli/config_file.h"
#include "cli/flags.h"
#include "cli/verbs.h"
#include "session/session.h"

namespace spillway {
namespace {

struct InspectArguments {
  explicit InspectArguments(CLI::App& app) : flags(app, options_of(options)) {}
  InspectOptions options;
  Flags flags;
};

// The plan is that of the run's own options; its model is inspected unless another is named.
void take_run(InspectOptions& options) {
  TrainOptions& run = options.plan_of;
  load_config(std::filesystem::path(options.run) / run_config_name, options_of(run));
  if (options.model.empty()) options.model = run.model;
}

ExitCode inspect(InspectArguments& arguments) {
  arguments.flags.apply();
  if (!arguments.options.run.empty()) take_run(arguments.options);
  validate(arguments.options);
  run_inspect(arguments.options, [](std::string_view text) { print(text); });
  return ExitCode::ok;
}

}  // namespace

Verb add_inspect(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("inspect", "what is in a model folder, or the story of one tensor");
  auto arguments = std::make_shared<InspectArguments>(*verb);
  return {verb, [arguments] { return inspect(*arguments); }};
}

}  // namespace spillway
