#include <memory>

#include "base/bytes.h"
#include "cli/flags.h"
#include "cli/verbs.h"
#include "model/presets.h"
#include "session/session.h"

namespace spillway {
namespace {

struct InitArguments {
  explicit InitArguments(CLI::App& app) : flags(app, options_of(options)) {
    app.add_option("OUT", options.output, "folder to write; must not exist or be empty")->type_name("");
  }
  InitOptions options;
  Flags flags;
};

ExitCode init(InitArguments& arguments) {
  arguments.flags.apply();
  validate(arguments.options);
  const InitReport report = run_init(arguments.options);
  print(fmt::format("wrote {}: {:.1f} M parameters, {}\n", arguments.options.output,
                    static_cast<double>(report.parameters) / 1e6, format_bytes(report.bytes)));
  return ExitCode::ok;
}

std::string preset_list() {
  std::string list = "Presets:\n";
  for (const Preset& preset : presets()) list += fmt::format("  {:<16}{}\n", preset.name, preset.what);
  return list;
}

}  // namespace

Verb add_init(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("init", "write a model folder with random weights");
  auto arguments = std::make_shared<InitArguments>(*verb);
  verb->footer(preset_list());
  return {verb, [arguments] { return init(*arguments); }};
}

}  // namespace spillway
