// Lines of metrics.jsonl, read back.
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

#include "report/run_files.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr double most_number = 1e18;  // of bytes, tokens and steps; also what a double of seconds may be

// Fields of one object. A field that has another type than it should makes the whole record none.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {}

  bool sound() const { return sound_; }

  double real(std::string_view key) {
    const auto found = object_.find(key);
    if (found == object_.end()) return missing();
    if (found->is_null()) return std::numeric_limits<double>::quiet_NaN();  // as NaN and infinities are written
    if (!found->is_number()) return missing();
    const double value = found->get<double>();
    return std::abs(value) <= most_number ? value : missing();
  }
  double seconds(std::string_view key) {
    const double value = real(key);
    return value >= 0 ? value : missing();
  }
  std::int64_t count(std::string_view key) { return static_cast<std::int64_t>(seconds(key)); }

  std::optional<double> maybe(std::string_view key) {
    if (!object_.contains(key)) return std::nullopt;
    return real(key);
  }
  const json* object(std::string_view key) const {
    const auto found = object_.find(key);
    return found != object_.end() && found->is_object() ? &*found : nullptr;
  }

 private:
  double missing() {
    sound_ = false;
    return 0;
  }

  const json& object_;
  bool sound_ = true;
};

// Numbers of a closed list of names; those that are not there are 0.
template <typename Enum, typename Number, std::size_t count>
bool read_object(const Fields& fields, std::string_view key, std::array<Number, count>& numbers) {
  const json* object = fields.object(key);
  if (object == nullptr) return false;
  Fields inner(*object);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view name = name_of(static_cast<Enum>(i));
    if (object->contains(name)) numbers[i] = static_cast<Number>(inner.seconds(name));
  }
  return inner.sound();
}

std::optional<StepTotals> totals_of(const Fields& fields) {
  StepTotals totals;
  const bool all = read_object<StepPhase>(fields, "phase_seconds", totals.phase_seconds) &&
                   read_object<WaitCause>(fields, "wait_seconds", totals.wait_seconds) &&
                   read_object<MemoryTag>(fields, "read_bytes", totals.read_bytes) &&
                   read_object<MemoryTag>(fields, "write_bytes", totals.write_bytes) &&
                   read_object<MemoryTag>(fields, "memory_bytes", totals.memory_bytes);
  if (all && fields.object("device_memory_bytes") != nullptr &&
      !read_object<MemoryTag>(fields, "device_memory_bytes", totals.device_memory_bytes))
    return std::nullopt;
  return all ? std::optional(totals) : std::nullopt;
}

}  // namespace

std::optional<StepRecord> record_from_json(std::string_view line) {
  const json object = json::parse(line, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  Fields fields(object);
  StepRecord record;
  record.step = fields.count("step");
  record.loss = static_cast<float>(fields.real("loss"));
  record.grad_norm = static_cast<float>(fields.real("grad_norm"));
  record.learning_rate = fields.real("learning_rate");
  record.tokens = fields.count("tokens");
  record.step_seconds = fields.seconds("step_seconds");
  record.tokens_per_second = fields.seconds("tokens_per_second");
  record.stall_seconds = fields.seconds("stall_seconds");
  record.rss_bytes = fields.count("rss_bytes");
  record.disk_read_bytes = fields.count("disk_read_bytes");
  record.disk_write_bytes = fields.count("disk_write_bytes");
  if (object.contains("link_up_bytes"))
    record.link = LinkTraffic{fields.count("link_up_bytes"), fields.count("link_down_bytes")};
  record.eval_loss = fields.maybe("eval_loss");
  record.predicted_seconds = fields.maybe("predicted_seconds");
  record.lower_bound_seconds = fields.maybe("lower_bound_seconds");
  if (const auto clipped = object.find("clipped"); clipped != object.end() && clipped->is_boolean())
    record.clipped = clipped->get<bool>();
  if (const auto clip = object.find("clip"); clip != object.end() && clip->is_string())
    record.clip = clip->get<std::string>();
  if (object.contains("committed_step")) record.committed_step = fields.count("committed_step");
  record.totals = totals_of(fields);
  if (!fields.sound() || record.step < 1) return std::nullopt;
  return record;
}

}  // namespace spillway
