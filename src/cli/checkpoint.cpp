#include <nlohmann/json.hpp>

#include <chrono>
#include <ctime>
#include <memory>

#include "base/bytes.h"
#include "cli/verbs.h"
#include "session/checkpoint_verbs.h"

namespace spillway {
namespace {

struct CheckpointArguments {
  std::string action;
  std::string dir;
  std::string to;
  std::int64_t step = -1;
  std::int64_t keep = 1;
  bool only_model = false;
  bool json = false;
};

std::string_view name_of(CheckpointRow::Kind kind) { return kind == CheckpointRow::Kind::commit ? "commit" : "export"; }

std::string date_of(std::int64_t unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm parts = {};
  char text[32] = "";
  if (::localtime_r(&time, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

std::string json_of(const CheckpointReport& report) {
  nlohmann::ordered_json json = {{"sound", report.sound()},
                                 {"run_going_on", report.run_going_on},
                                 {"checkpoints", nlohmann::ordered_json::array()},
                                 {"notes", report.notes}};
  for (const CheckpointRow& row : report.rows) {
    json["checkpoints"].push_back({{"kind", name_of(row.kind)},
                                   {"step", row.step},
                                   {"resumable", row.full},
                                   {"left", row.left},
                                   {"bytes", row.bytes},
                                   {"unix_seconds", row.unix_seconds},
                                   {"where", row.where},
                                   {"faults", row.faults}});
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

// How rows are called that are sound, and what is said where there is none.
struct Words {
  std::string_view sound;
  std::string_view none;
};

std::string text_of(const CheckpointReport& report, const Words& words) {
  std::string text =
      fmt::format("{:>10}  {:<7}{:>12}  {:<20} {:<14} {}\n", "step", "kind", "size", "made", "state", "where");
  for (const CheckpointRow& row : report.rows) {
    std::string state = !row.faults.empty() ? "damaged" : row.full ? std::string(words.sound) : "weights";
    if (row.left) state += ", left";
    text += fmt::format("{:>10}  {:<7}{:>12}  {:<20} {:<14} {}\n", row.step, name_of(row.kind), format_bytes(row.bytes),
                        date_of(row.unix_seconds), state, row.where);
    for (const std::string& fault : row.faults) text += fmt::format("{:>12}{}\n", "", fault);
  }
  if (report.rows.empty()) text = fmt::format("{}\n", words.none);
  for (const std::string& note : report.notes) text += note + '\n';
  return text;
}

ExitCode show(const CheckpointReport& report, bool json, const Words& words) {
  print(json ? json_of(report) : text_of(report, words));
  return ExitCode::ok;
}

ExitCode checkpoint(const CheckpointArguments& given) {
  constexpr std::string_view none = "no checkpoints that can be looked at";
  if (given.action == "list") {
    const CheckpointReport report = list_checkpoints(given.dir);
    if (report.run_going_on)
      print_notes({fmt::format("a run is going on in {}, so its commits are not shown", given.dir)});
    return show(report, given.json, {"readable", none});
  }
  if (given.action == "prune") {
    const CheckpointReport report = prune_checkpoints(given.dir, given.keep);
    print_notes(report.told);
    return show(report, given.json, {"removed", "nothing to remove"});
  }
  if (given.action == "verify") {
    const CheckpointReport report = verify_checkpoints(given.dir);
    show(report, given.json, {"sound", none});
    if (report.damaged()) throw DeviceError("{}: not all of it verifies", given.dir);
    if (report.run_going_on)
      throw UserError("a run is going on in {}, so its commits were not checked; ask again when it has ended",
                      given.dir);
    return ExitCode::ok;
  }
  if (given.to.empty()) throw UserError("--to is missing; give it the folder to write");
  const std::int64_t step = export_checkpoint(given.dir, given.step, given.to, given.only_model);
  print(given.json ? fmt::format("{{\"step\": {}}}\n", step) : fmt::format("exported step {} to {}\n", step, given.to));
  return ExitCode::ok;
}

}  // namespace

Verb add_checkpoint(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("checkpoint", "list, verify, export or prune what a run can be resumed from");
  auto given = std::make_shared<CheckpointArguments>();
  verb->add_option("ACTION", given->action, "list, verify, export or prune")
      ->required()
      ->check(CLI::IsMember({"list", "verify", "export", "prune"}))
      ->type_name("");
  verb->add_option("DIR", given->dir, "output folder of the run")->required()->type_name("");
  verb->add_option("--to", given->to, "export: the folder to write");
  verb->add_option("--step", given->step, "export: the commit of this step; default: the newest");
  verb->add_flag("--save-only-model", given->only_model, "export: the weights alone");
  verb->add_option(
          "--keep", given->keep,
          "prune: how many commits, and how many exports, to keep; what the run has left goes first; default 1")
      ->check(CLI::NonNegativeNumber);
  verb->add_flag("--json", given->json, "print one JSON object");
  return {verb, [given] { return checkpoint(*given); }};
}

}  // namespace spillway
