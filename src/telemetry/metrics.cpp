#include "telemetry/metrics.h"

#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <fstream>
#include <string_view>

#include "base/error.h"

namespace spillway {
namespace {

template <typename Real>
std::string shortest(Real value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string json_number(double value) { return std::isfinite(value) ? shortest(value) : "null"; }

// The shortest text of a float, unless reading it as a double first would round twice to another float.
std::string json_number(float value) {
  if (!std::isfinite(value)) return "null";
  const std::string text = shortest(value);
  double wide = 0;
  std::from_chars(text.data(), text.data() + text.size(), wide);
  return static_cast<float>(wide) == value ? text : shortest(static_cast<double>(value));
}

std::string json_number(std::int64_t value) { return std::to_string(value); }

template <typename Number>
void append(std::string& json, std::string_view name, Number value) {
  json += json.empty() ? "{\"" : ", \"";
  json += name;
  json += "\": ";
  json += json_number(value);
}

// {"forward": 1.5, …}: a number for each value of a closed list.
template <typename Enum, typename Number, std::size_t count>
std::string object_of(const std::array<Number, count>& numbers, std::size_t names = count) {
  std::string json;
  for (std::size_t i = 0; i < names; ++i) append(json, name_of(static_cast<Enum>(i)), numbers[i]);
  return json + '}';
}

void append_text(std::string& json, std::string_view name, const std::string& text) {
  json += fmt::format(", \"{}\": {}", name, text);
}

void append_totals(std::string& json, const StepTotals& totals, bool device) {
  constexpr std::size_t moving_tags = static_cast<std::size_t>(MemoryTag::unused);
  append_text(json, "phase_seconds", object_of<StepPhase>(totals.phase_seconds));
  append_text(json, "wait_seconds",
              object_of<WaitCause>(totals.wait_seconds, device ? wait_cause_count : disk_wait_cause_count));
  append_text(json, "read_bytes", object_of<MemoryTag>(totals.read_bytes, moving_tags));
  append_text(json, "write_bytes", object_of<MemoryTag>(totals.write_bytes, moving_tags));
  append_text(json, "memory_bytes", object_of<MemoryTag>(totals.memory_bytes));
  if (device) append_text(json, "device_memory_bytes", object_of<MemoryTag>(totals.device_memory_bytes));
}

// Where the records up to this step end.
std::int64_t bytes_through(const std::filesystem::path& path, std::int64_t keep_steps) {
  std::ifstream file(path);
  std::int64_t bytes = 0;
  std::int64_t last = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const std::int64_t step = step_of_record(line);
    if (step <= last || step > keep_steps) break;
    last = step;
    bytes += std::ssize(line) + 1;
  }
  return bytes;
}

}  // namespace

std::string_view name_of(StepPhase phase) {
  constexpr std::array<std::string_view, step_phase_count> names{"forward",  "head",   "recompute",
                                                                 "backward", "update", "other"};
  return names[static_cast<std::size_t>(phase)];
}

std::string_view name_of(WaitCause cause) {
  constexpr std::array<std::string_view, wait_cause_count> names{
      "read_weights",    "read_optimizer",    "read_gradients", "read_activations", "write_weights", "write_optimizer",
      "write_gradients", "write_activations", "up_weights",     "up_optimizer",     "up_gradients",  "up_activations",
      "down_weights",    "down_optimizer",    "down_gradients", "down_activations", "update"};
  return names[static_cast<std::size_t>(cause)];
}

std::string json_of(const StepRecord& r) {
  std::string json;
  append(json, "step", r.step);
  append(json, "loss", r.loss);
  append(json, "grad_norm", r.grad_norm);
  append(json, "learning_rate", r.learning_rate);
  append(json, "tokens", r.tokens);
  append(json, "step_seconds", r.step_seconds);
  append(json, "tokens_per_second", r.tokens_per_second);
  append(json, "stall_seconds", r.stall_seconds);
  append(json, "rss_bytes", r.rss_bytes);
  append(json, "disk_read_bytes", r.disk_read_bytes);
  append(json, "disk_write_bytes", r.disk_write_bytes);
  if (r.link) append(json, "link_up_bytes", r.link->up_bytes);
  if (r.link) append(json, "link_down_bytes", r.link->down_bytes);
  if (r.host_updates + r.device_updates > 0) {
    append(json, "host_updates", r.host_updates);
    append(json, "device_updates", r.device_updates);
  }
  if (r.seconds_left) append(json, "seconds_left", *r.seconds_left);
  if (r.eval_loss) append(json, "eval_loss", *r.eval_loss);
  if (r.predicted_seconds) append(json, "predicted_seconds", *r.predicted_seconds);
  if (r.lower_bound_seconds) {
    append(json, "lower_bound_seconds", *r.lower_bound_seconds);
    append(json, "share_of_bound", *r.lower_bound_seconds / r.step_seconds);
  }
  if (!r.clip.empty()) {
    append_text(json, "clip", nlohmann::json(r.clip).dump());
    append_text(json, "clipped", r.clipped ? "true" : "false");
  }
  if (r.committed_step) append(json, "committed_step", *r.committed_step);
  if (r.totals) append_totals(json, *r.totals, r.link.has_value());
  json += '}';
  return json;
}

std::int64_t step_of_record(std::string_view line) {
  constexpr std::string_view begin = "{\"step\": ";
  if (!line.starts_with(begin) || !line.ends_with('}')) return 0;
  std::int64_t step = 0;
  std::from_chars(line.data() + begin.size(), line.data() + line.size(), step);
  return step;
}

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t keep_steps)
    : file_(path, AppendedFile::Begin::any_file) {
  if (file_.bytes().value_or(0) > 0) file_.cut(bytes_through(path, keep_steps));
}

void MetricsFile::write(const StepRecord& record) { file_.append(json_of(record) + '\n'); }

}  // namespace spillway
