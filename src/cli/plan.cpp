#include <nlohmann/json.hpp>

#include <memory>

#include "base/bytes.h"
#include "cli/train_arguments.h"
#include "cli/verbs.h"
#include "session/session.h"

namespace spillway {
namespace {

std::string json_of(const PlanReport& r) {
  nlohmann::ordered_json json = {
      {"fits", r.fits},
      {"budget_bytes", r.budget_bytes},
      {"min_memory_bytes", r.min_memory_bytes},
      {"in_memory_bytes", r.in_memory_bytes},
      {"peak_memory_bytes", r.peak_memory_bytes},
      {"disk_read_bytes_per_step", r.disk_read_bytes_per_step},
      {"disk_write_bytes_per_step", r.disk_write_bytes_per_step},
      {"disk_state_write_bytes_per_step", r.disk_state_write_bytes_per_step},
      {"work", r.work},
      {"parameters", r.parameters},
      {"tokens_per_step", r.tokens_per_step},
      {"total_steps", r.total_steps},
      {"dtype", r.dtype},
      {"placement", nlohmann::ordered_json::array()},
  };
  for (const PlacementRow& row : r.placement)
    json["placement"].push_back(
        {{"what", row.what}, {"bytes", row.bytes}, {"memory_bytes", row.memory_bytes}, {"disk_bytes", row.disk_bytes}});
  if (r.prediction) {
    json["step_seconds"] = r.prediction->step_seconds;
    json["lower_bound_seconds"] = r.prediction->lower_bound_seconds;
    json["compute_seconds"] = r.prediction->compute_seconds;
    json["disk_seconds"] = r.prediction->disk_seconds;
    json["stall_seconds"] = r.prediction->stall_seconds;
    json["bottleneck"] = r.prediction->bottleneck;
    json["second_disk_speedup"] = r.prediction->second_disk_speedup;
  }
  if (!r.fits) json["advice"] = r.advice;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

std::string text_of(const StepPrediction& p, std::int64_t tokens) {
  std::string text = fmt::format("\n{:<24}{:>10.3f} s, {:.1f} tokens/s\n", "step, predicted", p.step_seconds,
                                 static_cast<double>(tokens) / p.step_seconds);
  text += fmt::format("{:<24}{:>10.3f} s, the plan reaches {:.0f}% of it\n", "lower bound", p.lower_bound_seconds,
                      100 * p.lower_bound_seconds / p.step_seconds);
  text += fmt::format("{:<24}{:>10.3f} s computing, {:.3f} s of disk, {:.3f} s waiting for the disk\n", "of which",
                      p.compute_seconds, p.disk_seconds, p.stall_seconds);
  return text + fmt::format("{:<24}{:>12}; a second disk like it: {:.2f}x\n", "bottleneck", p.bottleneck,
                            p.second_disk_speedup);
}

std::string text_of(const PlanReport& r) {
  std::string text = fmt::format("{:.1f} M parameters, {}, {} tokens a step, {} steps\n\n",
                                 static_cast<double>(r.parameters) / 1e6, r.dtype, r.tokens_per_step, r.total_steps);
  text += fmt::format("{:<24}{:>12}{:>12}{:>12}\n", "", "in all", "in memory", "on disk");
  for (const PlacementRow& row : r.placement)
    text += fmt::format("{:<24}{:>12}{:>12}{:>12}\n", row.what, format_bytes(row.bytes), format_bytes(row.memory_bytes),
                        format_bytes(row.disk_bytes));
  text += fmt::format("\n{:<24}{:>12}\n", "memory allowed", format_bytes(r.budget_bytes));
  if (r.fits) text += fmt::format("{:<24}{:>12}\n", "peak", format_bytes(r.peak_memory_bytes));
  text += fmt::format("{:<24}{:>12}\n", "smallest that works", format_budget(r.min_memory_bytes));
  text += fmt::format("{:<24}{:>12}\n", "nothing on disk from", format_budget(r.in_memory_bytes));
  if (r.fits)
    text += fmt::format("{:<24}{:>12} read, {} written, {} of it state\n", "disk, each step",
                        format_bytes(r.disk_read_bytes_per_step), format_bytes(r.disk_write_bytes_per_step),
                        format_bytes(r.disk_state_write_bytes_per_step));
  if (r.prediction) text += text_of(*r.prediction, r.tokens_per_step);
  return text + (r.fits ? "\nfits\n" : "\ndoes not fit\n");
}

ExitCode plan(TrainArguments& arguments, bool json, bool predict) {
  const TrainOptions& options = arguments.read();
  if (arguments.print_config_wanted()) {
    print(arguments.config_text());
    return ExitCode::ok;
  }
  validate(options, TrainUse::plan);
  const PlanReport report = run_plan(options, predict || !options.trace.empty());
  print_notes(report.notes);
  print(json ? json_of(report) : text_of(report));
  if (report.fits) return ExitCode::ok;
  throw DoesNotFit("{}", report.advice);
}

}  // namespace

Verb add_plan(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("plan", "say whether a training run fits and what moves, without starting it");
  auto arguments = std::make_shared<TrainArguments>(*verb);
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "print one JSON object");
  auto predict = std::make_shared<bool>(false);
  verb->add_flag("--predict", *predict, "measure this machine for some seconds and predict the time of a step");
  return {verb, [arguments, json, predict] { return plan(*arguments, *json, *predict); }};
}

}  // namespace spillway
