#include <memory>
#include <sstream>

#include "cli/config_file.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "formats/atomic_file.h"
#include "report/figure.h"
#include "report/page.h"
#include "report/report_data.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_runs = 6;  // that charts can tell apart

struct ReportArguments {
  std::vector<std::string> runs;
  std::string output;
  std::string png;
};

std::vector<std::pair<std::string, std::string>> rows_of(TrainOptions& options, TrainOptions& defaults) {
  std::vector<std::pair<std::string, std::string>> rows;
  std::istringstream text(print_config(options_of(options), options_of(defaults)));
  for (std::string line; std::getline(text, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with('#') || colon == std::string::npos) continue;
    rows.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  }
  return rows;
}

void read_config(RunFiles& run) {
  if (run.config_text.empty()) return;
  TrainOptions options;
  TrainOptions defaults;
  try {
    parse_config(run.config_text, (run.folder / run_config_name).string(), options_of(options));
  } catch (const Error& error) {
    run.notes.emplace_back(error.what());
    return;
  }
  run.budget_bytes = options.memory_bytes;
  const auto usual = rows_of(defaults, defaults);
  for (auto& row : rows_of(options, defaults)) {
    const bool is_usual = std::find(usual.begin(), usual.end(), row) != usual.end();
    run.config.push_back({row.first, row.second, is_usual});
  }
}

std::string summary_of(const ReportedRun& run) {
  std::string text = run.files.folder.string() + '\n';
  for (const auto& sentences : {run.step_sentences, run.bound_sentences, run.story}) {
    for (const std::string& sentence : sentences) text += "  " + sentence + '\n';
  }
  return text;
}

ExitCode report(const ReportArguments& arguments) {
  if (arguments.runs.size() > most_runs)
    throw UserError("report: {} runs are too many for one page; give at most {}", arguments.runs.size(), most_runs);
  std::vector<ReportedRun> runs;
  std::vector<std::string> notes;
  for (const std::string& folder : arguments.runs) {
    RunFiles files = read_run(folder);
    read_config(files);
    runs.push_back(report_of(std::move(files)));
    const auto& of = runs.back().files.notes;
    notes.insert(notes.end(), of.begin(), of.end());
  }
  print_notes(notes);
  std::string written;
  if (!arguments.png.empty()) {
    write_figure(runs.front(), arguments.png);
    written += arguments.png;
  }
  if (arguments.png.empty() || !arguments.output.empty()) {
    const std::string name = runs.size() == 1 ? "report.html" : "compared.html";
    const fs::path path =
        arguments.output.empty() ? fs::path(arguments.runs.front()) / name : fs::path(arguments.output);
    write_file_atomically(path, page_with(json_of(runs, std::string(version))));
    written += (written.empty() ? "" : " and ") + path.string();
  }
  std::string text;
  for (const ReportedRun& run : runs) text += summary_of(run);
  print(text + "wrote " + written + '\n');
  return ExitCode::ok;
}

}  // namespace

Verb add_report(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("report", "make a page that shows a run, or compares runs");
  auto arguments = std::make_shared<ReportArguments>();
  verb->add_option("RUN_DIR", arguments->runs, "output folders of runs; several are compared")->required();
  verb->add_option("--output", arguments->output, "the page; report.html in the folder of the run without it");
  verb->add_option("--png", arguments->png, "a figure of a step of the first run, for a paper, instead of the page");
  return {verb, [arguments] { return report(*arguments); }};
}

}  // namespace spillway
