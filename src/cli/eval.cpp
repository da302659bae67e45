#include <nlohmann/json.hpp>

#include <memory>

#include "cli/flags.h"
#include "cli/verbs.h"
#include "session/session.h"

namespace spillway {
namespace {

struct EvalArguments {
  explicit EvalArguments(CLI::App& app) : flags(app, options_of(options)) {}
  EvalOptions options;
  Flags flags;
};

ExitCode eval(EvalArguments& arguments) {
  arguments.flags.apply();
  validate(arguments.options);
  const EvalReport report = run_eval(arguments.options);
  print_notes(report.notes);
  if (arguments.options.json) {
    const nlohmann::ordered_json json = {{"loss", report.loss},
                                         {"perplexity", report.perplexity},
                                         {"tokens", report.tokens},
                                         {"seconds", report.seconds}};
    print(json.dump() + '\n');
  } else {
    print(fmt::format("loss {:.4f}  perplexity {:.4f}  {} tokens  {:.1f} s\n", report.loss, report.perplexity,
                      report.tokens, report.seconds));
  }
  return ExitCode::ok;
}

}  // namespace

Verb add_eval(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("eval", "mean loss and perplexity of a model on text");
  auto arguments = std::make_shared<EvalArguments>(*verb);
  return {verb, [arguments] { return eval(*arguments); }};
}

}  // namespace spillway
