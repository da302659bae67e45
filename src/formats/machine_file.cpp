#include "formats/machine_file.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/file.h"
#include "formats/json_object.h"

namespace spillway {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t most_bytes = std::int64_t{1} << 50;
constexpr std::int64_t most_threads = 4096;
constexpr double least_rate = 1;
constexpr double most_rate = 1e18;
constexpr double most_seconds = 3600;  // of anything that happens once an op, a move or a page
constexpr double most_times = 1000;    // as long
constexpr double most_of_an_op = 1e30;
constexpr std::int64_t most_depth = 256;

void refuse_unknown(const JsonObject& object, std::span<const std::string_view> known) {
  for (const auto& item : object.json().items()) {
    if (item.key().starts_with('_') || std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
    object.refuse(item.key(), "no such key is known; docs/formats.md lists them");
  }
}

RateSource source_of(const JsonObject& object) {
  const std::string name = object.string("source", "declared");
  for (const RateSource source :
       {RateSource::measured, RateSource::declared, RateSource::predicted, RateSource::roofline}) {
    if (name_of(source) == name) return source;
  }
  object.refuse("source", "it must be measured, declared, predicted or roofline");
}

DType dtype_of(const JsonObject& object) {
  const std::string name = object.string("dtype", "f32");
  if (name != "f32" && name != "bf16") object.refuse("dtype", "it must be f32 or bf16");
  return name == "f32" ? DType::f32 : DType::bf16;
}

// What nobody says is as it was.
void read(const JsonObject& object, std::string_view key, double& value, double least, double most) {
  const json* const found = object.find(key);
  if (found == nullptr) return;
  if (!found->is_number() || !(found->get<double>() >= least && found->get<double>() <= most))
    object.refuse(key, fmt::format("it must be a number from {} to {}", least, most));
  value = found->get<double>();
}

void read_seconds(const JsonObject& object, std::string_view key, double& value) {
  read(object, key, value, 0, most_seconds);
}

// Of a disk, a link or a processor, a second, within what any machine has, so that shares and times of it stay finite.
double rate_of(const JsonObject& object, std::string_view key, std::optional<double> otherwise = {}) {
  const double value = object.positive(key, otherwise);
  if (!(value >= least_rate && value <= most_rate))
    object.refuse(key, fmt::format("it must be a number from {} to {}", least_rate, most_rate));
  return value;
}

// Bytes as a number, or as "16GiB".
void read_bytes(const JsonObject& object, std::string_view key, std::int64_t& value) {
  const json* const found = object.find(key);
  if (found == nullptr) return;
  value = found->is_string() ? parse_bytes(found->get<std::string>(), object.file() + ": " + std::string(key))
                             : object.size(key, most_bytes);
}

std::vector<JsonObject> objects(const JsonObject& parent, std::string_view key) {
  const json* const found = parent.find(key);
  if (found == nullptr) return {};
  if (!found->is_array()) parent.refuse(key, "it must be a list");
  std::vector<JsonObject> all;
  for (const json& item : *found) {
    if (!item.is_object()) parent.refuse(key, "its items must be objects");
    all.emplace_back(item, parent.file() + ": " + std::string(key));
  }
  return all;
}

MachineIdentity read_identity(const JsonObject& object) {
  MachineIdentity identity;
  identity.processor = object.string("processor", "");
  identity.cpus = object.size("cpus", most_threads, 0);
  identity.memory_bytes = object.size("memory_bytes", most_bytes, 0);
  identity.kernel = object.string("kernel", "");
  identity.libraries = object.string("libraries", "");
  identity.build = object.string("build", "");
  return identity;
}

DiskRate read_disk(const JsonObject& object) {
  refuse_unknown(object, std::to_array<std::string_view>({"directory", "device", "block_bytes", "read_bytes_per_second",
                                                          "write_bytes_per_second", "mixed_bytes_per_second",
                                                          "request_seconds", "depth", "source"}));
  DiskRate disk;
  disk.directory = object.string("directory", "");
  disk.device = object.string("device", "");
  disk.source = source_of(object);
  read_bytes(object, "block_bytes", disk.block_bytes);
  disk.read_bytes_per_second = rate_of(object, "read_bytes_per_second");
  disk.write_bytes_per_second = rate_of(object, "write_bytes_per_second", disk.read_bytes_per_second);
  disk.mixed_bytes_per_second =
      rate_of(object, "mixed_bytes_per_second", std::min(disk.read_bytes_per_second, disk.write_bytes_per_second));
  disk.request_seconds = assumed_rates().disks.front().request_seconds;
  read_seconds(object, "request_seconds", disk.request_seconds);
  disk.depth = object.size("depth", most_depth, 0);
  return disk;
}

LinkRate read_link(const JsonObject& object) {
  refuse_unknown(object, std::to_array<std::string_view>(
                             {"up_bytes_per_second", "down_bytes_per_second", "copy_seconds", "map_seconds"}));
  LinkRate link = assumed_rates().link;
  link.up_bytes_per_second = rate_of(object, "up_bytes_per_second");
  link.down_bytes_per_second = rate_of(object, "down_bytes_per_second", link.up_bytes_per_second);
  read_seconds(object, "copy_seconds", link.copy_seconds);
  read_seconds(object, "map_seconds", link.map_seconds);
  return link;
}

UpdateRates read_update(const JsonObject& object) {
  refuse_unknown(object,
                 std::to_array<std::string_view>({"host_parameters_per_second", "device_parameters_per_second"}));
  return {rate_of(object, "host_parameters_per_second"), rate_of(object, "device_parameters_per_second")};
}

OpRate read_op(const JsonObject& object) {
  refuse_unknown(object, std::to_array<std::string_view>(
                             {"op", "dtype", "shape", "flops", "bytes", "threads", "seconds", "source"}));
  OpRate rate;
  rate.what.op = object.string("op", "");
  rate.what.dtype = dtype_of(object);
  rate.what.shape = object.string("shape", "");
  read(object, "flops", rate.what.flops, 0, most_of_an_op);
  read(object, "bytes", rate.what.bytes, 0, most_of_an_op);
  if (rate.what.flops + rate.what.bytes == 0)
    object.refuse("flops", "an op needs flops or bytes, by which its other shapes are estimated");
  rate.threads = object.size("threads", most_threads, 0);
  rate.seconds = object.positive("seconds");
  rate.source = source_of(object);
  return rate;
}

void read_bandwidth(const JsonObject& object, std::vector<double>& rates) {
  constexpr std::string_view key = "memory_bytes_per_second";
  const json* const found = object.find(key);
  if (found == nullptr) return;
  const json list = found->is_array() ? *found : json::array({*found});
  const auto is_rate = [](const json& item) {
    return item.is_number() && item.get<double>() >= least_rate && item.get<double>() <= most_rate;
  };
  if (list.empty() || !std::all_of(list.begin(), list.end(), is_rate))
    object.refuse(key, fmt::format("it must be numbers from {} to {}", least_rate, most_rate));
  rates.clear();
  for (const json& item : list) rates.push_back(item.get<double>());
}

ordered_json identity_json(const MachineIdentity& identity) {
  ordered_json out = {{"processor", identity.processor},
                      {"kernel", identity.kernel},
                      {"libraries", identity.libraries},
                      {"build", identity.build}};
  if (identity.cpus > 0) out["cpus"] = identity.cpus;
  if (identity.memory_bytes > 0) out["memory_bytes"] = identity.memory_bytes;
  return out;
}

ordered_json disk_json(const DiskRate& disk) {
  ordered_json out = {{"directory", disk.directory}, {"device", disk.device}};
  if (disk.block_bytes > 0) out["block_bytes"] = disk.block_bytes;
  out["read_bytes_per_second"] = disk.read_bytes_per_second;
  out["write_bytes_per_second"] = disk.write_bytes_per_second;
  out["mixed_bytes_per_second"] = disk.mixed_bytes_per_second;
  out["request_seconds"] = disk.request_seconds;
  if (disk.depth > 0) out["depth"] = disk.depth;
  out["source"] = name_of(disk.source);
  return out;
}

ordered_json link_json(const LinkRate& link) {
  return {{"up_bytes_per_second", link.up_bytes_per_second},
          {"down_bytes_per_second", link.down_bytes_per_second},
          {"copy_seconds", link.copy_seconds},
          {"map_seconds", link.map_seconds}};
}

ordered_json op_json(const OpRate& rate) {
  ordered_json out = {{"op", rate.what.op},
                      {"dtype", name_of(rate.what.dtype)},
                      {"shape", rate.what.shape},
                      {"flops", rate.what.flops},
                      {"bytes", rate.what.bytes},
                      {"seconds", rate.seconds},
                      {"source", name_of(rate.source)}};
  if (rate.threads > 0) out["threads"] = rate.threads;
  return out;
}

}  // namespace

MachineRates parse_machine(std::string_view text, const std::string& file) {
  json root;
  try {
    root = json::parse(text);
  } catch (const json::exception& error) {
    throw UserError("{} is no JSON ({}); write it as docs/formats.md says, or let `spillway probe --json` do it", file,
                    text_of(error));
  }
  if (!root.is_object()) throw UserError("{} holds no JSON object; docs/formats.md has its keys", file);
  const JsonObject object(root, file);
  refuse_unknown(object,
                 std::to_array<std::string_view>({"identity", "threads", "memory_bytes", "bf16_flops_per_second",
                                                  "f32_flops_per_second", "memory_bytes_per_second", "compute_slowdown",
                                                  "disk_slowdown", "op_seconds", "attach_seconds", "wake_seconds",
                                                  "device_memory_bytes", "link", "update", "source", "disks", "ops"}));
  MachineRates rates = assumed_rates();
  if (const std::optional<JsonObject> identity = object.object("identity")) rates.identity = read_identity(*identity);
  rates.threads = object.size("threads", most_threads, 0);
  read_bytes(object, "memory_bytes", rates.memory_bytes);
  rates.bf16_flops_per_second = rate_of(object, "bf16_flops_per_second", rates.bf16_flops_per_second);
  rates.f32_flops_per_second = rate_of(object, "f32_flops_per_second", rates.f32_flops_per_second);
  read_bandwidth(object, rates.memory_bytes_per_second);
  read(object, "compute_slowdown", rates.compute_slowdown, 1, most_times);
  read(object, "disk_slowdown", rates.disk_slowdown, 1, most_times);
  read_seconds(object, "op_seconds", rates.op_seconds);
  read_seconds(object, "attach_seconds", rates.attach_seconds);
  read_seconds(object, "wake_seconds", rates.wake_seconds);
  read_bytes(object, "device_memory_bytes", rates.device_memory_bytes);
  if (const std::optional<JsonObject> link = object.object("link")) rates.link = read_link(*link);
  if (const std::optional<JsonObject> update = object.object("update")) rates.update = read_update(*update);
  rates.source = source_of(object);
  if (object.has("disks")) rates.disks.clear();
  for (const JsonObject& disk : objects(object, "disks")) rates.disks.push_back(read_disk(disk));
  for (const JsonObject& op : objects(object, "ops")) rates.ops.push_back(read_op(op));
  return rates;
}

MachineRates read_machine(const std::filesystem::path& path) {
  return parse_machine(read_small_file(path, 64 * mib), path.string());
}

std::string write_machine(const MachineRates& rates) {
  ordered_json out = {{"identity", identity_json(rates.identity)}};
  if (rates.threads > 0) out["threads"] = rates.threads;
  if (rates.memory_bytes > 0) out["memory_bytes"] = rates.memory_bytes;
  out["bf16_flops_per_second"] = rates.bf16_flops_per_second;
  out["f32_flops_per_second"] = rates.f32_flops_per_second;
  out["memory_bytes_per_second"] = rates.memory_bytes_per_second;
  out["compute_slowdown"] = rates.compute_slowdown;
  out["disk_slowdown"] = rates.disk_slowdown;
  out["op_seconds"] = rates.op_seconds;
  out["attach_seconds"] = rates.attach_seconds;
  out["wake_seconds"] = rates.wake_seconds;
  if (rates.device_memory_bytes > 0) {
    out["device_memory_bytes"] = rates.device_memory_bytes;
    out["link"] = link_json(rates.link);
    if (rates.update.host_parameters_per_second > 0 && rates.update.device_parameters_per_second > 0) {
      out["update"] = {{"host_parameters_per_second", rates.update.host_parameters_per_second},
                       {"device_parameters_per_second", rates.update.device_parameters_per_second}};
    }
  }
  out["source"] = name_of(rates.source);
  out["disks"] = ordered_json::array();
  for (const DiskRate& disk : rates.disks) out["disks"].push_back(disk_json(disk));
  out["ops"] = ordered_json::array();
  for (const OpRate& op : rates.ops) out["ops"].push_back(op_json(op));
  return out.dump(1, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace spillway
