// A report as JSON.
#include <fmt/chrono.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <ctime>

#include "report/report_data.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_slow_steps = 200;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json number(const std::optional<double>& value) { return value ? number(*value) : Json(nullptr); }

// Microseconds, to tenths.
double micros(std::int64_t ns) { return std::round(static_cast<double>(ns) / 100) / 10; }

template <typename Enum>
Json names(std::size_t count) {
  Json list = Json::array();
  for (std::size_t i = 0; i < count; ++i) list.push_back(name_of(static_cast<Enum>(i)));
  return list;
}

// One list for each of the names.
template <std::size_t count, typename Number, typename Get>
Json columns(const std::vector<StepRecord>& steps, Get&& get) {
  Json lists = Json::array();
  for (std::size_t i = 0; i < count; ++i) {
    Json list = Json::array();
    for (const StepRecord& record : steps)
      list.push_back(record.totals ? Json(static_cast<Number>(get(*record.totals)[i])) : Json(nullptr));
    lists.push_back(std::move(list));
  }
  return lists;
}

template <typename Get>
Json column(const std::vector<StepRecord>& steps, Get&& get) {
  Json list = Json::array();
  for (const StepRecord& record : steps) list.push_back(get(record));
  return list;
}

Json curves(const ReportedRun& run) {
  const Thinned thinned = thin(run.files.steps);
  const std::vector<StepRecord>& steps = thinned.steps;
  Json json{{"every", thinned.every}};
  json["step"] = column(steps, [](const auto& r) { return r.step; });
  json["loss"] = column(steps, [](const auto& r) { return number(static_cast<double>(r.loss)); });
  json["eval_loss"] = column(steps, [](const auto& r) { return number(r.eval_loss); });
  json["grad_norm"] = column(steps, [](const auto& r) { return number(static_cast<double>(r.grad_norm)); });
  json["learning_rate"] = column(steps, [](const auto& r) { return number(r.learning_rate); });
  json["seconds"] = column(steps, [](const auto& r) { return number(r.step_seconds); });
  json["tokens_per_second"] = column(steps, [](const auto& r) { return number(r.tokens_per_second); });
  json["predicted_seconds"] = column(steps, [](const auto& r) { return number(r.predicted_seconds); });
  json["lower_bound_seconds"] = column(steps, [](const auto& r) { return number(r.lower_bound_seconds); });
  json["tokens"] = column(steps, [](const auto& r) { return r.tokens; });
  json["read_bytes"] = column(steps, [](const auto& r) { return r.disk_read_bytes; });
  json["write_bytes"] = column(steps, [](const auto& r) { return r.disk_write_bytes; });
  json["up_bytes"] = column(steps, [](const auto& r) { return r.link ? Json(r.link->up_bytes) : Json(nullptr); });
  json["down_bytes"] = column(steps, [](const auto& r) { return r.link ? Json(r.link->down_bytes) : Json(nullptr); });
  json["rss_bytes"] = column(steps, [](const auto& r) { return r.rss_bytes; });
  json["phase_seconds"] = columns<step_phase_count, double>(
      steps, [](const StepTotals& t) -> auto& { return t.phase_seconds; });
  json["wait_seconds"] = columns<wait_cause_count, double>(
      steps, [](const StepTotals& t) -> auto& { return t.wait_seconds; });
  return json;
}

// Each commit once, at the step in whose record it is first.
Json commits(const ReportedRun& run) {
  Json list = Json::array();
  std::optional<std::int64_t> last;
  for (const StepRecord& record : run.files.steps) {
    if (record.committed_step && record.committed_step != last) list.push_back({*record.committed_step, record.step});
    if (record.committed_step) last = record.committed_step;
  }
  return list;
}

Json totals(const ReportedRun& run) {
  const RunTotals& t = run.totals;
  return {{"steps", t.steps},
          {"total_steps", run.files.flight ? run.files.flight->total_steps : t.steps},
          {"seconds", number(t.seconds)},
          {"median_step_seconds", number(t.median_step_seconds)},
          {"median_tokens_per_second", number(t.median_tokens_per_second)},
          {"tokens", t.tokens},
          {"stall_seconds", number(t.stall_seconds)},
          {"read_bytes", t.read_bytes},
          {"write_bytes", t.write_bytes},
          {"peak_rss_bytes", t.peak_rss_bytes},
          {"clipped", t.clipped},
          {"first_loss", number(t.first_loss)},
          {"last_loss", number(t.last_loss)},
          {"eval_loss", number(t.eval_loss)},
          {"predicted_seconds", number(t.predicted_seconds)},
          {"lower_bound_seconds", number(t.lower_bound_seconds)},
          {"with_totals", t.totals_steps},
          {"phase_seconds", t.totals.phase_seconds},
          {"wait_seconds", t.totals.wait_seconds},
          {"read_bytes_by_tag", t.totals.read_bytes},
          {"write_bytes_by_tag", t.totals.write_bytes},
          {"memory_bytes", t.totals.memory_bytes}};
}

Json changes(const std::vector<TimelineChange>& list) {
  Json json = Json::array();
  for (const TimelineChange& c : list) json.push_back({micros(c.time_ns), c.layer, static_cast<int>(c.tag), c.bytes});
  return json;
}

Json phases(const ReportedRun& run) {
  Json list = Json::array();
  for (const PhaseUse& row : run.phases) {
    list.push_back({{"phase", static_cast<int>(row.phase)},
                    {"seconds", row.seconds},
                    {"waiting_seconds", row.waiting_seconds},
                    {"disk_busy_seconds", row.disk_busy_seconds},
                    {"read_busy_seconds", row.read_busy_seconds},
                    {"write_busy_seconds", row.write_busy_seconds},
                    {"link_busy_seconds", row.link_busy_seconds},
                    {"read_bytes", row.read_bytes},
                    {"write_bytes", row.write_bytes},
                    {"up_bytes", row.up_bytes},
                    {"down_bytes", row.down_bytes},
                    {"wait_seconds", row.wait_seconds}});
  }
  return list;
}

int link_number(EventLane lane) {
  if (is_of_link(lane)) return lane == EventLane::up ? 2 : 3;
  return lane == EventLane::read ? 0 : 1;
}

Json timeline(const ReportedRun& run) {
  if (!run.timeline) return nullptr;
  const StepTimeline& t = *run.timeline;
  Json json{{"step", t.step},
            {"whole", t.whole},
            {"us", micros(t.ns)},
            {"arena_bytes", t.arena_bytes},
            {"device_bytes", t.device_bytes}};
  for (const TimelineBand& b : t.bands)
    json["bands"].push_back({micros(b.begin_ns), micros(b.end_ns), static_cast<int>(b.phase)});
  for (const TimelineOps& o : t.ops)
    json["ops"].push_back({micros(o.begin_ns), micros(o.end_ns), static_cast<int>(o.phase), o.layer, o.what});
  for (const TimelineWait& w : t.waits)
    json["waits"].push_back(
        {micros(w.begin_ns), micros(w.end_ns), static_cast<int>(w.cause), static_cast<int>(w.phase), w.layer, w.what});
  for (const TimelineMove& m : t.moves)
    json["moves"].push_back({micros(m.begin_ns), micros(m.end_ns), link_number(m.lane), static_cast<int>(m.tag),
                             m.layer, m.bytes, m.bundle, micros(m.submit_ns)});
  for (const char* list : {"bands", "ops", "waits", "moves"}) {
    if (!json.contains(list)) json[list] = Json::array();
  }
  json["memory"] = changes(t.memory);
  json["device"] = changes(t.device);
  json["disk"] = changes(t.disk);
  json["bundles"] = t.bundles;
  json["phases"] = phases(run);
  return json;
}

Json machine(const RunFiles& files) {
  if (!files.machine) return nullptr;
  const MachineRates& m = *files.machine;
  Json json{{"processor", m.identity.processor},
            {"cpus", m.identity.cpus},
            {"memory_bytes", m.identity.memory_bytes > 0 ? m.identity.memory_bytes : m.memory_bytes},
            {"kernel", m.identity.kernel},
            {"libraries", m.identity.libraries},
            {"build", m.identity.build},
            {"threads", m.threads},
            {"source", name_of(m.source)},
            {"bf16_flops_per_second", number(m.bf16_flops_per_second)},
            {"f32_flops_per_second", number(m.f32_flops_per_second)},
            {"memory_bytes_per_second", number(m.memory_bandwidth())},
            {"disks", Json::array()}};
  for (const DiskRate& disk : m.disks) {
    json["disks"].push_back({{"directory", disk.directory},
                             {"device", disk.device},
                             {"read_bytes_per_second", number(disk.read_bytes_per_second)},
                             {"write_bytes_per_second", number(disk.write_bytes_per_second)},
                             {"mixed_bytes_per_second", number(disk.mixed_bytes_per_second)},
                             {"source", name_of(disk.source)}});
  }
  return json;
}

Json slow(const ReportedRun& run) {
  Json list = Json::array();
  for (const SlowStep& s : run.slow) {
    if (list.size() == most_slow_steps) break;
    list.push_back({s.step, s.seconds, s.median_seconds});
  }
  return list;
}

Json json_of(const ReportedRun& run) {
  Json config = Json::array();
  for (const ConfigRow& row : run.files.config) config.push_back({row.key, row.value, row.usual});
  return {{"name", run.files.name},
          {"folder", run.files.folder.string()},
          {"state", run.state},
          {"story", run.story},
          {"step_sentences", run.step_sentences},
          {"bound_sentences", run.bound_sentences},
          {"notes", run.files.notes},
          {"totals", totals(run)},
          {"steps", curves(run)},
          {"slow", slow(run)},
          {"slow_count", run.slow.size()},
          {"commits", commits(run)},
          {"timeline", timeline(run)},
          {"machine", machine(run.files)},
          {"config", std::move(config)},
          {"budget_bytes", run.files.budget_bytes},
          {"config_text", run.files.config_text}};
}

}  // namespace

std::string json_of(std::span<const ReportedRun> runs, const std::string& version) {
  Json json{{"version", report_data_version},
            {"spillway", version},
            {"made", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))},
            {"phases", names<StepPhase>(step_phase_count)},
            {"causes", names<WaitCause>(wait_cause_count)},
            {"tags", names<MemoryTag>(memory_tag_count)},
            {"runs", Json::array()}};
  for (const ReportedRun& run : runs) json["runs"].push_back(json_of(run));
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);  // ASCII alone
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace spillway
