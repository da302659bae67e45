#include <memory>

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

ExitCode inspect(InspectArguments& arguments) {
  arguments.flags.apply();
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
