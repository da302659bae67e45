#include "telemetry/live_view.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.h"
#include "base/error.h"
#include "telemetry/console.h"

namespace spillway {
namespace {

constexpr std::string_view bar_color = "\x1b[36m";
constexpr std::string_view warning_color = "\x1b[33m";
constexpr std::string_view color_off = "\x1b[0m";
constexpr std::int64_t most_bar_columns = 40;
constexpr std::int64_t spark_columns = 24;
constexpr std::int64_t full_view_rows = 10;  // below that one line
constexpr std::int64_t full_view_columns = 40;
constexpr double worth_saying_seconds = 0.5;  // that one wait has lasted

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; }

// The first `columns` columns; what is cut off ends the colour too.
std::string cut(std::string_view text, std::int64_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  std::string result;
  std::int64_t width = 0;
  bool escape = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') escape = true;
    if (!escape && !continues(text[i]) && width++ == columns) break;
    if (escape && text[i] >= '@' && text[i] != '[') escape = false;
    result += text[i];
  }
  return result + (text.find('\x1b') == text.npos ? "" : std::string(color_off));
}

double done_share(const ViewState& s) {
  const std::int64_t total = std::max<std::int64_t>(1, s.run.total_steps);
  const double steps = s.last ? static_cast<double>(s.last->step) : 0;
  const bool under_way = s.live.step_seconds > 0 && static_cast<double>(s.live.step) > steps;
  return std::clamp((steps + (under_way ? s.live.share_of_step : 0)) / static_cast<double>(total), 0.0, 1.0);
}

std::string left_of(const ViewState& s) {
  const std::optional<double>& seconds = s.last ? s.last->seconds_left : s.live.seconds_left;
  if (!seconds) return "measuring";
  return format_seconds(std::max(0.0, *seconds - s.live.step_seconds)) + " left";
}

std::string bar_of(const ViewState& s, std::int64_t width) {
  if (width < 5) return {};
  const auto inside = std::min(width, most_bar_columns) - 2;
  const auto done = static_cast<std::int64_t>(done_share(s) * static_cast<double>(inside));
  std::string bar = "[" + std::string(static_cast<std::size_t>(done), '=') +
                    std::string(static_cast<std::size_t>(inside - done), ' ') + "]";
  return s.color ? std::string(bar_color) + bar + std::string(color_off) : bar;
}

std::string progress(const ViewState& s, ViewSize size, bool with_loss) {
  const std::int64_t step = std::max(s.live.step, s.last ? s.last->step : 0);
  std::string words = fmt::format(" {:3.0f}%  step {}/{}", std::floor(done_share(s) * 100), step, s.run.total_steps);
  if (with_loss && s.last) words += fmt::format("  loss {:.4f}", s.last->loss);
  words += "  " + left_of(s);
  return bar_of(s, size.columns - columns_of(words)) + words;
}

std::string loss_line(const ViewState& s) {
  if (!s.last) return "no step has ended yet";
  std::string text = fmt::format("loss {:.4f}", s.last->loss);
  if (s.blocks && s.losses.size() > 1) text += " " + sparkline(s.losses, spark_columns);
  text += fmt::format("  {:.0f} tokens/s", s.last->tokens_per_second);
  if (const std::string share = share_of_bound(*s.last); !share.empty()) text += ", " + share;
  return text;
}

// ": weights 1 GiB, optimizer 2 GiB"
std::string by_tag(const std::array<std::int64_t, memory_tag_count>& bytes) {
  std::string text;
  for (std::size_t tag = 0; tag < memory_tag_count; ++tag) {
    if (bytes[tag] == 0) continue;
    text += fmt::format(" {} {},", name_of(static_cast<MemoryTag>(tag)), format_bytes(bytes[tag]));
  }
  if (text.empty()) return text;
  text.pop_back();
  return ":" + text;
}

std::string memory_line(const ViewState& s) {
  return fmt::format("memory {} of {}{}", format_bytes(s.live.rss_bytes), format_bytes(s.run.budget_bytes),
                     by_tag(s.live.memory_bytes));
}

std::string device_line(const ViewState& s) {
  return fmt::format("device {}{}", format_bytes(s.run.device_bytes), by_tag(s.live.device_memory_bytes));
}

std::string link_line(const ViewState& s) {
  return fmt::format("link   up {:.0f} MB/s, down {:.0f} MB/s", s.live.up_bytes_per_second * 1e-6,
                     s.live.down_bytes_per_second * 1e-6);
}

std::string disk_line(const ViewState& s) {
  return fmt::format("disk   reads {:.0f} MB/s, writes {:.0f} MB/s; {} of the state on disk",
                     s.live.read_bytes_per_second * 1e-6, s.live.write_bytes_per_second * 1e-6,
                     format_bytes(s.run.spilled_bytes));
}

std::string work_line(const ViewState& s) {
  const std::string during = s.live.phase == RunPhase::train ? "" : std::string(name_of(s.live.phase)) + ": ";
  if (!s.live.waits_for.empty() && s.live.waited_seconds > worth_saying_seconds) {
    const std::string text =
        fmt::format("now    {}waits {:.1f} s for {}", during, s.live.waited_seconds, s.live.waits_for);
    return s.color ? std::string(warning_color) + text + std::string(color_off) : text;
  }
  return fmt::format("now    {}{}", during, s.live.part.empty() ? "starting" : s.live.part);
}

std::string wait_line(const ViewState& s) {
  std::string cause = s.live.largest_wait;
  std::replace(cause.begin(), cause.end(), '_', ' ');
  std::string text =
      cause.empty() ? "waits  none in the last step"
                    : fmt::format("waits  most for {}, {:.2f} s in the last step", cause, s.live.largest_wait_seconds);
  if (s.live.committed_step)
    text += fmt::format("; last commit: step {}, {} ago", *s.live.committed_step,
                        format_seconds(s.live.seconds_since_commit));
  return text;
}

}  // namespace

std::int64_t columns_of(std::string_view text) {
  std::int64_t columns = 0;
  bool escape = false;
  for (const char byte : text) {
    if (byte == '\x1b') escape = true;
    if (!escape && !continues(byte)) ++columns;
    if (escape && byte >= '@' && byte != '[') escape = false;
  }
  return columns;
}

std::string sparkline(std::span<const float> losses, std::int64_t width) {
  constexpr std::array<std::string_view, 8> blocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto shown = losses.last(std::min(losses.size(), static_cast<std::size_t>(std::max<std::int64_t>(0, width))));
  if (shown.empty()) return {};
  const auto [low, high] = std::minmax_element(shown.begin(), shown.end());
  std::string line;
  for (const float loss : shown) {
    const float share = *high > *low ? (loss - *low) / (*high - *low) : 0.0F;
    line += blocks[std::min<std::size_t>(7, static_cast<std::size_t>(std::max(0.0F, share) * 8))];
  }
  return line;
}

std::vector<std::string> view_of(const ViewState& state, ViewSize size) {
  std::vector<std::string> lines;
  if (size.rows < full_view_rows || size.columns < full_view_columns) {
    lines = {progress(state, size, true)};
  } else {
    lines = {progress(state, size, false),
             loss_line(state),
             memory_line(state),
             disk_line(state),
             work_line(state),
             wait_line(state)};
    if (state.run.device_bytes > 0) lines.insert(lines.begin() + 3, {device_line(state), link_line(state)});
  }
  for (std::string& line : lines) line = cut(line, size.columns);
  return lines;
}

}  // namespace spillway
