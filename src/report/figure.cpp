#include "report/figure.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>

#include "base/error.h"
#include "formats/atomic_file.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace spillway {
namespace {

constexpr std::size_t bins = 400;
constexpr std::size_t shown_tags = static_cast<std::size_t>(MemoryTag::unused);

struct Bins {
  double bin_seconds = 0;
  std::array<std::array<double, bins>, shown_tags> memory{};  // when most was in use
  std::array<std::array<double, bins>, 2> moved{};            // bytes, by link
};

void fill_memory(const StepTimeline& t, Bins& to) {
  std::array<double, shown_tags> now{};
  std::array<double, bins> most{};
  const auto keep = [&](std::size_t bin) {
    double used = 0;
    for (const double bytes : now) used += bytes;
    if (used < most[bin]) return;
    most[bin] = used;
    for (std::size_t tag = 0; tag < shown_tags; ++tag) to.memory[tag][bin] = now[tag];
  };
  std::size_t change = 0;
  for (std::size_t bin = 0; bin < bins; ++bin) {
    const double end = to.bin_seconds * static_cast<double>(bin + 1);
    keep(bin);
    for (; change < t.memory.size() && static_cast<double>(t.memory[change].time_ns) * 1e-9 < end; ++change) {
      const auto tag = static_cast<std::size_t>(t.memory[change].tag);
      if (tag < shown_tags) now[tag] += static_cast<double>(t.memory[change].bytes);
      const bool last_of_instant =
          change + 1 == t.memory.size() || t.memory[change + 1].time_ns != t.memory[change].time_ns;
      if (last_of_instant) keep(bin);
    }
  }
}

void fill_moves(const StepTimeline& t, Bins& to) {
  for (const TimelineMove& move : t.moves) {
    if (is_of_link(move.lane)) continue;  // the figure is of the disk
    const double from = static_cast<double>(move.submit_ns) * 1e-9;
    const double until = std::max(static_cast<double>(move.end_ns) * 1e-9, from + 1e-9);
    auto& row = to.moved[move.lane == EventLane::read ? 0 : 1];
    const auto first = static_cast<std::size_t>(from / to.bin_seconds);
    for (std::size_t bin = first; bin < bins && static_cast<double>(bin) * to.bin_seconds < until; ++bin) {
      const double low = std::max(from, static_cast<double>(bin) * to.bin_seconds);
      const double high = std::min(until, static_cast<double>(bin + 1) * to.bin_seconds);
      if (high > low) row[bin] += static_cast<double>(move.bytes) * (high - low) / (until - from);
    }
  }
}

// In single quotes, in which gnuplot knows no escape but the doubled quote.
std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 32) continue;
    result += c;
    if (c == '\'') result += c;
  }
  return result + '\'';
}

std::string bands_of(const StepTimeline& t, double scale) {
  constexpr std::array<const char*, step_phase_count> colours{"#cfe2f7", "#dcd6f5", "#e9ebc4",
                                                              "#fbe6c6", "#cdebd6", "#e9eaec"};
  std::string text = "unset object\n";
  for (const TimelineBand& band : t.bands) {
    text += fmt::format(
        "set object rectangle from {:.6f}, graph 0 to {:.6f}, graph 1 behind fillcolor rgb '{}' "
        "fillstyle solid noborder\n",
        static_cast<double>(band.begin_ns) * 1e-9 * scale, static_cast<double>(band.end_ns) * 1e-9 * scale,
        colours[static_cast<std::size_t>(band.phase)]);
  }
  return text;
}

std::string labels_of(const StepTimeline& t, double scale) {
  std::string text;
  for (const TimelineBand& band : t.bands) {
    if (band.end_ns - band.begin_ns < t.ns / 12) continue;
    text += fmt::format("set label {} at {:.6f}, graph 0.94 center front\n", in_quotes(name_of(band.phase)),
                        static_cast<double>(band.begin_ns + band.end_ns) / 2 * 1e-9 * scale);
  }
  return text;
}

std::string data_of(const Bins& b, double scale) {
  std::string text = "$data << EOD\n";
  for (std::size_t bin = 0; bin < bins; ++bin) {
    text += fmt::format("{:.6f}", (static_cast<double>(bin) + 0.5) * b.bin_seconds * scale);
    double stacked = 0;
    for (std::size_t tag = 0; tag < shown_tags; ++tag) {
      stacked += b.memory[tag][bin];
      text += fmt::format(" {:.4f}", stacked / (1 << 20));
    }
    for (const auto& row : b.moved) text += fmt::format(" {:.6f}", row[bin] / b.bin_seconds / 1e9);
    text += '\n';
  }
  return text + "EOD\n";
}

constexpr std::string_view plots = R"(
set lmargin 11
set rmargin 3
set border 3 linecolor rgb '#444444'
set tics nomirror
set key outside top right horizontal samplen 1.5
set multiplot layout 2,1
set format x ''
set ylabel 'disk (GB/s)'
set yrange [0:*]
plot $data using 1:6 with lines linewidth 2.5 linecolor rgb '#1f8fb5' title 'read', \
     $data using 1:7 with lines linewidth 2.5 linecolor rgb '#c2408a' title 'write'
unset label
set xlabel time
set format x '%g'
set ylabel 'memory (MiB)'
plot $data using 1:5 with filledcurves x1 linecolor rgb '#9a63d3' title 'activations', \
     $data using 1:4 with filledcurves x1 linecolor rgb '#2fa36b' title 'gradients', \
     $data using 1:3 with filledcurves x1 linecolor rgb '#e08a1e' title 'optimizer', \
     $data using 1:2 with filledcurves x1 linecolor rgb '#3b7dd8' title 'weights'
unset multiplot
)";

// The exit status of gnuplot with this script; -1 when it is not there.
int run_gnuplot(const std::filesystem::path& script) {
  std::string name = "gnuplot";
  std::string file = script.string();
  std::array<char*, 3> arguments{name.data(), file.data(), nullptr};
  pid_t child = 0;
  if (::posix_spawnp(&child, "gnuplot", nullptr, nullptr, arguments.data(), environ) != 0) return -1;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

std::string figure_script(const ReportedRun& run, const std::filesystem::path& path) {
  const StepTimeline& t = *run.timeline;
  const double seconds = std::max(static_cast<double>(t.ns) * 1e-9, 1e-9);
  const bool in_ms = seconds < 2;
  const double scale = in_ms ? 1e3 : 1;
  Bins binned;
  binned.bin_seconds = seconds / static_cast<double>(bins);
  fill_memory(t, binned);
  fill_moves(t, binned);
  std::string script = "set terminal pngcairo size 1800,1150 noenhanced font 'sans,22' linewidth 1.5\n";
  script += fmt::format("set output {}\n", in_quotes(path.string()));
  script += fmt::format("set xrange [0:{:.6f}]\n", seconds * scale);
  script += data_of(binned, scale) + bands_of(t, scale) + labels_of(t, scale);
  script += fmt::format("time = {}\n", in_quotes(fmt::format("step {}, time ({})", t.step, in_ms ? "ms" : "s")));
  return script + std::string(plots);
}

void write_figure(const ReportedRun& run, const std::filesystem::path& path) {
  if (!run.timeline) throw UserError("--png: {} has no timeline of a step to draw", run.files.folder.string());
  const std::filesystem::path temporary = temporary_name(path);
  const std::filesystem::path script = temporary.string() + ".gnuplot";
  write_file_atomically(script, figure_script(run, temporary));
  const int status = run_gnuplot(script);
  std::error_code error;
  std::filesystem::remove(script, error);
  if (status == -1) throw UserError("--png: gnuplot is not installed; on Debian `apt install gnuplot-nox` brings it");
  if (status == 0) std::filesystem::rename(temporary, path, error);
  if (status == 0 && !error) return;
  std::filesystem::remove(temporary, error);
  throw DeviceError("{}: gnuplot could not write it", path.string());
}

}  // namespace spillway
