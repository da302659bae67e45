#include <memory>

#include "cli/flags.h"
#include "cli/verbs.h"
#include "session/session.h"

namespace spillway {
namespace {

struct TokenizeArguments {
  explicit TokenizeArguments(CLI::App& app) : flags(app, options_of(options)) {}
  TokenizeOptions options;
  Flags flags;
};

ExitCode tokenize(TokenizeArguments& arguments) {
  arguments.flags.apply();
  arguments.options.has_text = arguments.flags.given("text");
  validate(arguments.options);
  const TokenizeReport report = run_tokenize(arguments.options, [](std::string_view text) { print(text); });
  print_notes(report.notes);
  return ExitCode::ok;
}

}  // namespace

Verb add_tokenize(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("tokenize", "text to token ids, or with --decode back");
  auto arguments = std::make_shared<TokenizeArguments>(*verb);
  return {verb, [arguments] { return tokenize(*arguments); }};
}

}  // namespace spillway
