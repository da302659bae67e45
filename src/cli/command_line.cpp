#include "cli/command_line.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <system_error>

#include "cli/flags.h"
#include "cli/verbs.h"
#include "cli/version.h"

namespace spillway {
namespace {

constexpr auto description =
    "Spillway trains language models whose state does not fit in the memory you have.\n"
    "A model folder and a text go in; a trained model folder comes out.";
constexpr auto exit_codes =
    "Exit codes: 0 done, 1 a fault of spillway's own, 2 bad input, 3 does not fit, 4 I/O or device failure";

struct CommandLine {
  CLI::App app{description, "spillway"};
  std::vector<Verb> verbs;

  CommandLine() {
    app.set_version_flag("--version", "spillway " + std::string(version));
    app.footer(exit_codes);
    verbs = {add_init(app),       add_train(app),    add_plan(app),    add_eval(app),
             add_generate(app),   add_tokenize(app), add_inspect(app), add_probe(app),
             add_checkpoint(app), add_report(app),   add_doctor(app)};
  }

  const Verb* find(std::string_view name) const {
    const auto found =
        std::find_if(verbs.begin(), verbs.end(), [&](const Verb& v) { return v.app->get_name() == name; });
    return found == verbs.end() ? nullptr : &*found;
  }
};

// "--lerning-rate is no option of train; did you mean --learning-rate?"
UserError unknown_argument(const CLI::App& verb, const std::string& argument) {
  if (!argument.starts_with('-'))
    return UserError("{} is one argument too many for {}; `spillway {} --help` shows its use", argument,
                     verb.get_name(), verb.get_name());
  std::vector<std::string> flags;
  for (const CLI::Option* option : verb.get_options({}))
    if (!option->get_group().empty()) flags.push_back(option->get_name());
  const std::string name = argument.substr(0, argument.find('='));
  const std::string close = nearest(name, flags);
  if (close.empty())
    return UserError("{} is no option of {}; `spillway {} --help` lists them", name, verb.get_name(), verb.get_name());
  return UserError("{} is no option of {}; did you mean {}?", name, verb.get_name(), close);
}

UserError unknown_verb(const CommandLine& line, const std::string& word) {
  std::vector<std::string> names;
  for (const Verb& verb : line.verbs) names.push_back(verb.app->get_name());
  const std::string close = nearest(word, names);
  if (close.empty()) return UserError("{} is no verb; `spillway --help` lists them", word);
  return UserError("{} is no verb; did you mean {}?", word, close);
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

ExitCode run_verb(CommandLine& line, const Verb& verb, std::vector<std::string> arguments) {
  spell_out_values(arguments, *verb.app);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    line.app.parse(arguments);
  } catch (const CLI::Success&) {  // help
    print(line.app.help());
    return ExitCode::ok;
  } catch (const CLI::ExtrasError&) {
    const auto extras = line.app.remaining(true);
    throw extras.empty() ? UserError("wrong arguments for {}", verb.app->get_name())
                         : unknown_argument(*verb.app, extras.front());
  } catch (const CLI::ParseError& error) {
    throw UserError("{}; `spillway {} --help` shows its use", one_line(error.what()), verb.app->get_name());
  }
  const ExitCode code = verb.run();
  if (std::fflush(stdout) != 0) throw DeviceError("standard output: writing failed");
  return code;
}

ExitCode run(std::vector<std::string> arguments) {
  CommandLine line;
  if (arguments.empty()) throw UserError("a verb is missing; `spillway --help` lists them");
  const std::string& word = arguments.front();
  if (word == "--help" || word == "-h") {
    print(line.app.help());
    return ExitCode::ok;
  }
  if (word == "--version") {
    print("spillway " + std::string(version) + '\n');
    return ExitCode::ok;
  }
  const Verb* verb = line.find(word);
  if (verb == nullptr) throw unknown_verb(line, word);
  return run_verb(line, *verb, std::move(arguments));
}

int report(ExitCode code, const std::string& sentence) {
  std::fflush(stdout);
  std::fprintf(stderr, "spillway: error: %s\n", sentence.c_str());
  return static_cast<int>(code);
}

int report_internal(const std::exception& error) {
  return report(ExitCode::internal, fmt::format("internal error, please report it ({})", one_line(error.what())));
}

}  // namespace

void print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) throw DeviceError("standard output: writing failed");
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::fprintf(stderr, "spillway: %s\n", note.c_str());
}

int tell_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return report(error.code(), one_line(error.what()));
  } catch (const std::bad_alloc&) {
    return report(ExitCode::does_not_fit, "the system gave no more memory; lower --memory or free some");
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) return report_internal(error);
    return report(ExitCode::device,
                  "the system starts no more threads; give fewer --threads, or raise its limits (ulimit -u, ulimit -v, "
                  "pids.max of the container)");
  } catch (const std::exception& error) {
    return report_internal(error);
  }
}

int run_command_line(std::vector<std::string> arguments) {
  try {
    return static_cast<int>(run(std::move(arguments)));
  } catch (...) {
    return tell_failure();
  }
}

}  // namespace spillway
