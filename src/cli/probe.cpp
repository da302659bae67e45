#include <algorithm>
#include <memory>

#include "base/bytes.h"
#include "base/error.h"
#include "cli/train_arguments.h"
#include "cli/verbs.h"
#include "session/session.h"

namespace spillway {
namespace {

std::string per_second(double bytes) { return fmt::format("{:.2f} GB/s", bytes / 1e9); }

std::string disk_line(const DiskRate& disk) {
  return fmt::format("{:<28}{:>12}{:>12}{:>12}{:>9.0f} us\n", disk.device, per_second(disk.read_bytes_per_second),
                     per_second(disk.write_bytes_per_second), per_second(disk.mixed_bytes_per_second),
                     1e6 * disk.request_seconds);
}

// The ops of one name: how many shapes, and the share of what the roofline says.
std::string ops_table(const MachineRates& rates) {
  std::vector<std::string> names;
  for (const OpRate& op : rates.ops) {
    if (std::find(names.begin(), names.end(), op.what.op) == names.end()) names.push_back(op.what.op);
  }
  std::string text =
      fmt::format("\n{:<28}{:>12}{:>16}{:>16}{:>14}\n", "op", "shapes", "GFLOP/s", "GB/s", "of roofline");
  for (const std::string& name : names) {
    double seconds = 0, flops = 0, bytes = 0, roofline = 0;
    int shapes = 0;
    for (const OpRate& op : rates.ops) {
      if (op.what.op != name) continue;
      ++shapes;
      seconds += op.seconds;
      flops += op.what.flops;
      bytes += op.what.bytes;
      roofline += roofline_seconds(op.what, rates);
    }
    text += fmt::format("{:<28}{:>12}{:>16.1f}{:>16.1f}{:>13.0f}%\n", name, shapes, flops / seconds / 1e9,
                        bytes / seconds / 1e9, 100 * roofline / seconds);
  }
  return text;
}

std::string text_of(const ProbeReport& report) {
  const MachineRates& r = report.rates;
  std::string text =
      fmt::format("{}, {} threads, {}\n\n", r.identity.processor.substr(0, r.identity.processor.find(';')), r.threads,
                  format_bytes(r.identity.memory_bytes));
  text += fmt::format("{:<28}{:>12.1f} GFLOP/s bf16, {:.1f} f32\n", "products", r.bf16_flops_per_second / 1e9,
                      r.f32_flops_per_second / 1e9);
  std::string list;
  for (const double rate : r.memory_bytes_per_second)
    list += fmt::format("{}{:.1f}", list.empty() ? "" : ", ", rate / 1e9);
  text += fmt::format("{:<28}{:>12} GB/s on 1 to {} threads\n", "memory", list, r.threads);
  text += fmt::format("{:<28}{:>12.3f} times as long while the disk is busy\n", "computing", r.compute_slowdown);
  text += fmt::format("{:<28}{:>12.3f} times as long while all threads compute\n", "disk", r.disk_slowdown);
  text += fmt::format("{:<28}{:>12.1f} us to start an op, {:.1f} to wake a lane, {:.1f} to attach a page\n\n",
                      "small things", 1e6 * r.op_seconds, 1e6 * r.wake_seconds, 1e6 * r.attach_seconds);
  text += fmt::format("{:<28}{:>12}{:>12}{:>12}{:>12}\n", "disk", "read", "write", "both", "request");
  for (const DiskRate& disk : r.disks) text += disk_line(disk);
  if (!r.ops.empty()) text += ops_table(r);
  if (report.failure.empty()) text += fmt::format("\nkept in {}\n", report.cache);
  return text;
}

ExitCode probe(TrainArguments& arguments, bool json) {
  const TrainOptions& options = arguments.read();
  if (arguments.print_config_wanted()) {
    print(arguments.config_text());
    return ExitCode::ok;
  }
  const ProbeReport report = run_probe(options);
  print_notes(report.notes);
  print(json ? report.json : text_of(report));
  if (report.failure.empty()) return ExitCode::ok;
  if (!json) throw DeviceError("{}", report.failure);
  print_notes({report.failure});  // a file of them was what was asked for
  return ExitCode::ok;
}

}  // namespace

Verb add_probe(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("probe", "measure this machine, and with --model its ops, for about half a minute");
  auto arguments = std::make_shared<TrainArguments>(*verb);
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "print a machine file, as --machine takes it");
  return {verb, [arguments, json] { return probe(*arguments, *json); }};
}

}  // namespace spillway
