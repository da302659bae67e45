#include "store/slot_set.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <system_error>

#include "base/error.h"
#include "store/spill_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "spillway-";
constexpr std::string_view suffix = ".slots";
constexpr std::int32_t most_files = 1024;

struct SlotFileName {
  RunId run;
  std::int32_t index = 0;
  std::int32_t count = 0;
};

std::optional<std::int32_t> number_in(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<SlotFileName> parse_name(std::string_view name) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  name.remove_suffix(std::min(name.size(), suffix.size()));
  const std::size_t dot = name.find('.');
  const std::size_t of = name.find("-of-");
  if (dot == std::string_view::npos || of == std::string_view::npos || of < dot) return std::nullopt;
  const auto run = RunId::parse(name.substr(0, dot));
  const auto index = number_in(name.substr(dot + 1, of - dot - 1));
  const auto count = number_in(name.substr(of + 4));
  if (!run || !index || !count || *count > most_files || *index >= *count) return std::nullopt;
  return SlotFileName{*run, *index, *count};
}

}  // namespace

bool SlotSet::complete() const {
  return !paths.empty() && std::none_of(paths.begin(), paths.end(), [](const fs::path& path) { return path.empty(); });
}

std::string SlotSet::missing(const std::vector<fs::path>& searched) const {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!paths[i].empty()) continue;
    std::string where;
    for (const fs::path& directory : searched) {
      where += fmt::format("{}'{}'", where.empty() ? "" : ", ", directory.string());
    }
    return fmt::format("file {} of {} of run {} is missing: searched {}", i, paths.size(), run.text(), where);
  }
  return "";
}

std::string slot_file_name(const RunId& run, std::int32_t index, std::int32_t count) {
  return fmt::format("{}{}.{}-of-{}{}", prefix, run.text(), index, count, suffix);
}

std::vector<SlotSet> find_slot_sets(const std::vector<fs::path>& directories) {
  std::map<std::pair<RunId, std::int32_t>, SlotSet> sets;
  for (const fs::path& directory : directories) {
    std::error_code error;
    const fs::directory_iterator entries(directory, error);
    if (error == std::errc::no_such_file_or_directory) continue;
    if (error) {
      throw UserError("spill_dir: the directory '{}' cannot be read ({}): change its permissions, or name another",
                      directory.string(), error.message());
    }
    for (const auto& entry : entries) {
      const auto name = parse_name(entry.path().filename().string());
      if (!name) continue;
      SlotSet& set = sets[{name->run, name->count}];
      set.run = name->run;
      set.paths.resize(static_cast<std::size_t>(name->count));
      fs::path& path = set.paths[static_cast<std::size_t>(name->index)];
      if (path.empty()) path = entry.path();
    }
  }
  std::vector<SlotSet> found;
  for (auto& [key, set] : sets) found.push_back(std::move(set));
  return found;
}

void remove_slot_set(const SlotSet& set) {
  std::vector<SpillFile> files;  // all locked before any is removed
  for (const fs::path& path : set.paths) {
    if (!path.empty()) files.push_back(SpillFile::open(path));
  }
  for (const SpillFile& file : files) file.remove();
}

}  // namespace spillway
