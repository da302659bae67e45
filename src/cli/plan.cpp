#include <nlohmann/json.hpp>

#include <memory>

#include "base/bytes.h"
#include "base/counted.h"
#include "cli/train_arguments.h"
#include "cli/verbs.h"
#include "session/session.h"

namespace spillway {
namespace {

constexpr double day_seconds = 86400;
constexpr double year_days = 365.25;
constexpr double worth_saying = 0.01;  // share of a step

// Bytes that commits write to the spill directories in a day of training, beyond what the steps write.
double committed_a_day(const PlanReport& r) { return r.prediction->commit_bytes_per_second * day_seconds; }

double written_a_day(const PlanReport& r) {
  const double by_steps = static_cast<double>(r.disk_write_bytes_per_step) / r.prediction->step_seconds * day_seconds;
  return by_steps + committed_a_day(r);
}

constexpr double most_tbw = 1e6;  // an exabyte

double years_of_life(const PlanReport& r, double disk_tbw) { return disk_tbw * 1e12 / written_a_day(r) / year_days; }

void add_prediction(nlohmann::ordered_json& json, const PlanReport& r, double disk_tbw) {
  const StepPrediction& p = *r.prediction;
  json["step_seconds"] = p.step_seconds;
  json["tokens_per_second"] = static_cast<double>(r.tokens_per_step) / p.step_seconds;
  json["lower_bound_seconds"] = p.lower_bound_seconds;
  json["share_of_bound"] = p.lower_bound_seconds / p.step_seconds;
  json["compute_seconds"] = p.compute_seconds;
  json["recompute_seconds"] = p.recompute_seconds;
  json["disk_seconds"] = p.disk_seconds;
  if (r.device_memory_bytes > 0) {
    json["link_seconds"] = p.link_seconds;
    json["update_seconds"] = p.update_seconds;
  }
  json["stall_seconds"] = p.stall_seconds;
  json["slowed_seconds"] = p.slowed_seconds;
  json["bottleneck"] = p.bottleneck;
  json["phases"] = nlohmann::ordered_json::array();
  for (const PhaseRow& row : p.phases)
    json["phases"].push_back(
        {{"phase", row.phase}, {"compute_seconds", row.compute_seconds}, {"wait_seconds", row.wait_seconds}});
  json["levers"] = nlohmann::ordered_json::array();
  for (const Lever& lever : p.levers) json["levers"].push_back({{"what", lever.what}, {"speedup", lever.speedup}});
  if (r.total_steps > 0) json["run_seconds"] = p.step_seconds * static_cast<double>(r.total_steps);
  json["disk_written_bytes_per_day"] = written_a_day(r);
  json["disk_committed_bytes_per_day"] = committed_a_day(r);
  if (disk_tbw > 0 && written_a_day(r) > 0) json["disk_life_years"] = years_of_life(r, disk_tbw);
}

std::string json_of(const PlanReport& r, double disk_tbw) {
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
      {"total_steps_estimated", r.total_steps_estimated},
      {"dtype", r.dtype},
      {"placement", nlohmann::ordered_json::array()},
  };
  if (!r.clip.empty()) json["clip"] = r.clip;
  if (r.device_memory_bytes > 0) {
    json["device_memory_bytes"] = r.device_memory_bytes;
    json["min_device_memory_bytes"] = r.min_device_memory_bytes;
    json["peak_device_memory_bytes"] = r.peak_device_memory_bytes;
    json["link_up_bytes_per_step"] = r.link_up_bytes_per_step;
    json["link_down_bytes_per_step"] = r.link_down_bytes_per_step;
    json["device_direct"] = r.device_direct;
    json["direct_read_bytes_per_step"] = r.direct_read_bytes_per_step;
    json["direct_write_bytes_per_step"] = r.direct_write_bytes_per_step;
    json["updates_on_host"] = r.updates_on_host;
    json["updates_on_device"] = r.updates_on_device;
    json["parameters_updated_on_host"] = r.parameters_on_host;
    json["parameters_updated_on_device"] = r.parameters_on_device;
  }
  for (const PlacementRow& row : r.placement)
    json["placement"].push_back(
        {{"what", row.what}, {"bytes", row.bytes}, {"memory_bytes", row.memory_bytes}, {"disk_bytes", row.disk_bytes}});
  json["links"] = nlohmann::ordered_json::array();
  for (const LinkRow& row : r.links)
    json["links"].push_back({{"what", row.what}, {"read_bytes", row.read_bytes}, {"write_bytes", row.write_bytes}});
  for (const DiskRow& row : r.disks)
    json["disks"].push_back(
        {{"directory", row.directory}, {"read_bytes", row.read_bytes}, {"write_bytes", row.write_bytes}});
  json["peak_by_tag"] = nlohmann::ordered_json::array();
  for (const MemoryRow& row : r.memory)
    json["peak_by_tag"].push_back({{"what", row.what}, {"bytes", row.bytes}, {"waste_bytes", row.waste_bytes}});
  if (r.prediction) add_prediction(json, r, disk_tbw);
  if (!r.fits) json["advice"] = r.advice;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

std::string duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 3 * day_seconds) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.1f} days", seconds / day_seconds);
}

std::string life_of(double years) {
  return years < 2 ? duration(years * year_days * day_seconds) : fmt::format("{:.1f} years", years);
}

std::string steps_of(const PlanReport& r) {
  return (r.total_steps_estimated ? "about " : "") + counted(r.total_steps, "step");
}

std::string prediction_text(const PlanReport& r, double disk_tbw) {
  const StepPrediction& p = *r.prediction;
  std::string text = fmt::format("\n{:<24}{:>12}{:>12}{:>12}\n", "a step, predicted", "in all", "computing", "waiting");
  const auto row = [&](std::string_view what, double compute, double wait) {
    text += fmt::format("{:<24}{:>10.3f} s{:>10.3f} s{:>10.3f} s\n", what, compute + wait, compute, wait);
  };
  double computing = 0;
  double waiting = 0;
  for (const PhaseRow& phase : p.phases) {
    row("  " + phase.phase, phase.compute_seconds, phase.wait_seconds);
    computing += phase.compute_seconds;
    waiting += phase.wait_seconds;
  }
  row("step", computing, waiting);
  text += fmt::format("{:<24}{:>12.1f}\n", "tokens/s", static_cast<double>(r.tokens_per_step) / p.step_seconds);
  text += fmt::format("{:<24}{:>10.3f} s of computing, {:.3f} s of disk", "lower bound",
                      p.compute_seconds - p.recompute_seconds, p.disk_seconds);
  if (r.device_memory_bytes > 0)
    text += fmt::format(", {:.3f} s of link, {:.3f} s of updates on the processor", p.link_seconds, p.update_seconds);
  text += fmt::format("; the plan reaches {:.0f}%\n", 100 * p.lower_bound_seconds / p.step_seconds);
  if (p.recompute_seconds >= worth_saying * p.step_seconds)
    text += fmt::format("{:<24}{:>10.3f} s more of computing\n", "made again", p.recompute_seconds);
  if (r.device_memory_bytes == 0 && p.slowed_seconds >= worth_saying * p.step_seconds)
    text +=
        fmt::format("{:<24}{:>10.3f} s more of computing, which is slower then\n", "beside the disk", p.slowed_seconds);
  text += fmt::format("{:<23}{:>13}", "bottleneck", p.bottleneck);
  for (const Lever& lever : p.levers)
    text += fmt::format("{}{}: {:.2f}x", &lever == &p.levers.front() ? "\n  with " : "; ", lever.what, lever.speedup);
  text += '\n';
  text += fmt::format("{:<24}{:>12}{}\n", r.total_steps > 0 ? steps_of(r) : "1000 steps",
                      duration(p.step_seconds * static_cast<double>(r.total_steps > 0 ? r.total_steps : 1000)),
                      r.clip == "speculative" ? ", if none clips" : "");
  if (written_a_day(r) == 0) return text;
  text +=
      fmt::format("{:<24}{:>12} a day", "written to disk", format_bytes(static_cast<std::int64_t>(written_a_day(r))));
  if (committed_a_day(r) > 0)
    text += fmt::format(", {} of it by commits", format_bytes(static_cast<std::int64_t>(committed_a_day(r))));
  if (disk_tbw > 0)
    text += fmt::format("; {} until {:g} TB are written", life_of(years_of_life(r, disk_tbw)), disk_tbw);
  return text + '\n';
}

std::string device_text(const PlanReport& r) {
  std::string text = fmt::format("\n{:<24}{:>12}\n", "device, memory", format_bytes(r.device_memory_bytes));
  if (r.fits) text += fmt::format("{:<24}{:>12}\n", "peak on it", format_bytes(r.peak_device_memory_bytes));
  text += fmt::format("{:<24}{:>12}\n", "smallest that works", format_budget(r.min_device_memory_bytes));
  if (!r.fits) return text;
  text += fmt::format("{:<24}{:>12} up, {} down\n", "link, each step", format_bytes(r.link_up_bytes_per_step),
                      format_bytes(r.link_down_bytes_per_step));
  if (r.device_direct)
    text += fmt::format("{:<24}{:>12} read, {} written\n", "directly to disk",
                        format_bytes(r.direct_read_bytes_per_step), format_bytes(r.direct_write_bytes_per_step));
  const auto parameters = static_cast<double>(std::max<std::int64_t>(1, r.parameters_on_host + r.parameters_on_device));
  text += fmt::format("{:<24}{:>12} on the device, {:.0f}% of the parameters; {} on the processor\n", "updates",
                      r.updates_on_device, 100 * static_cast<double>(r.parameters_on_device) / parameters,
                      r.updates_on_host);
  return text;
}

// By what it holds, and the ends of pages with nothing on them.
std::string memory_text(const std::vector<MemoryRow>& rows) {
  std::string text = fmt::format("\n{:<24}{:>12}{:>12}\n", "memory at its peak", "", "page ends");
  MemoryRow all;
  const auto add = [&](std::string_view what, const std::string& bytes, std::int64_t waste_bytes) {
    text += fmt::format("  {:<22}{:>12}", what, bytes);
    text += waste_bytes > 0 ? fmt::format("{:>12}\n", format_bytes(waste_bytes)) : "\n";
  };
  for (const MemoryRow& row : rows) {
    add(row.what, format_bytes(row.bytes), row.waste_bytes);
    all.bytes += row.bytes;
    all.waste_bytes += row.waste_bytes;
  }
  add("in all", format_budget(all.bytes), all.waste_bytes);
  return text;
}

std::string text_of(const PlanReport& r, double disk_tbw) {
  std::string text = fmt::format("{:.1f} M parameters, {}, {} tokens a step", static_cast<double>(r.parameters) / 1e6,
                                 r.dtype, r.tokens_per_step);
  if (r.total_steps > 0) text += ", " + steps_of(r);
  text += "\n\n";
  if (r.fits) text += fmt::format("{:<24}{:>12}{:>12}{:>12}\n", "", "in all", "in memory", "on disk");
  for (const PlacementRow& row : r.placement)
    text += fmt::format("{:<24}{:>12}{:>12}{:>12}\n", row.what, format_bytes(row.bytes), format_bytes(row.memory_bytes),
                        format_bytes(row.disk_bytes));
  if (r.fits) text += '\n';
  text += fmt::format("{:<24}{:>12}\n", "memory allowed", format_budget(r.budget_bytes));
  if (r.fits) text += fmt::format("{:<24}{:>12}\n", "peak", format_budget(r.peak_memory_bytes));
  text += fmt::format("{:<24}{:>12}\n", "smallest that works", format_budget(r.min_memory_bytes));
  text += fmt::format("{:<24}{:>12}\n", "nothing on disk from", format_budget(r.in_memory_bytes));
  if (r.device_memory_bytes > 0) text += device_text(r);
  if (r.fits) text += fmt::format("{:<24}{:>12}\n", "clipping", r.clip.empty() ? "none" : r.clip);
  if (r.fits)
    text += fmt::format("{:<27}{:>9} read, {} written\n", "disk, each step", format_bytes(r.disk_read_bytes_per_step),
                        format_bytes(r.disk_write_bytes_per_step));
  for (const LinkRow& row : r.links)
    text += fmt::format("{:<27}{:>9} read, {} written\n", "  " + row.what, format_bytes(row.read_bytes),
                        format_bytes(row.write_bytes));
  for (const DiskRow& row : r.disks)
    text += fmt::format("{:<27}{:>9} read, {} written in {}\n", "  of this", format_bytes(row.read_bytes),
                        format_bytes(row.write_bytes), row.directory);
  if (!r.memory.empty()) text += memory_text(r.memory);
  if (r.prediction) text += prediction_text(r, disk_tbw);
  return text + (r.fits ? "\nfits\n" : "\ndoes not fit\n");
}

// The trace that a file names is that of the run, which may have been made; a flag asks for one of the plan.
ExitCode plan(TrainArguments& arguments, bool wants_trace, bool json, bool predict, double disk_tbw) {
  TrainOptions options = arguments.read();
  if (arguments.print_config_wanted()) {
    print(arguments.config_text());
    return ExitCode::ok;
  }
  if (!wants_trace) options.trace.clear();
  validate(options, TrainUse::plan);
  if (!(disk_tbw >= 0 && disk_tbw <= most_tbw))
    throw UserError("--disk-tbw must be a number from 0 to {:.0f}", most_tbw);
  const PlanReport report = run_plan(options, predict || !options.trace.empty());
  print_notes(report.notes);
  print(json ? json_of(report, disk_tbw) : text_of(report, disk_tbw));
  if (report.fits) return ExitCode::ok;
  throw DoesNotFit("{}", report.advice);
}

}  // namespace

Verb add_plan(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("plan", "say whether a training run fits and what moves, without starting it");
  auto arguments = std::make_shared<TrainArguments>(*verb);
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "print one JSON object");
  auto predict = std::make_shared<bool>(true);
  verb->add_flag("--predict,!--no-predict", *predict, "predict the time of a step [true]");
  auto disk_tbw = std::make_shared<double>(0);
  verb->add_option("--disk-tbw", *disk_tbw, "terabytes that the disk is rated for: say how long it will last")
      ->type_name("NUMBER");
  return {verb, [verb, arguments, json, predict, disk_tbw] {
            return plan(*arguments, verb->count("--trace") > 0, *json, *predict, *disk_tbw);
          }};
}

}  // namespace spillway
