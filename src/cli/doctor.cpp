#include <memory>

#include "cli/verbs.h"
#include "doctor/gather.h"
#include "doctor/report.h"
#include "telemetry/console.h"

namespace spillway {
namespace {

ExitCode doctor(const std::vector<std::string>& directories, bool json) {
  std::vector<std::filesystem::path> paths(directories.begin(), directories.end());
  if (paths.empty()) paths.push_back(std::filesystem::current_path());
  const std::vector<Finding> findings = examine(gather(paths));
  print(json ? json_of(findings) : text_of(findings, ConsoleStyle::of(stdout).color));
  return count(findings, Verdict::problem) == 0 ? ExitCode::ok : ExitCode::device;
}

}  // namespace

Verb add_doctor(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("doctor", "check this machine, and folders to spill to, in under a minute");
  auto directories = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  verb->add_option("DIRS", *directories, "folders to spill to; default: this one")->type_name("");
  verb->add_flag("--json", *json, "print one JSON object");
  return {verb, [directories, json] { return doctor(*directories, *json); }};
}

}  // namespace spillway
