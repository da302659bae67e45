#include "telemetry/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway {
namespace {

constexpr std::string_view clear_line = "\r\x1b[2K";
// Without wrapping a bar that became too long for a narrowed window stays on one line.
constexpr std::string_view wrap_off = "\x1b[?7l";
constexpr std::string_view wrap_on = "\x1b[?7h";
constexpr std::string_view bar_color = "\x1b[36m";
constexpr std::string_view color_off = "\x1b[0m";

// One write an update, so that nothing half-drawn is seen.
void put(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

std::int64_t columns_of(std::FILE* stream) {
  winsize size = {};
  const bool known = ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

std::string format_seconds(double seconds) {
  if (!(seconds >= 0) || seconds > 1e15) return "unknown";
  const auto s = static_cast<std::int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{} h {:02} min", s / 3600, s % 3600 / 60);
  return fmt::format("{} d {} h", s / 86400, s % 86400 / 3600);
}

std::string line_of(const StepRecord& r) {
  std::string line = fmt::format(
      "step {}/{}  loss {:.4f}  grad norm {:.3f}  lr {:.2e}  {:.0f} tokens/s  memory {}  disk read {} write {}", r.step,
      r.total_steps, r.loss, r.grad_norm, r.learning_rate, r.tokens_per_second, format_bytes(r.rss_bytes),
      format_bytes(r.disk_read_bytes), format_bytes(r.disk_write_bytes));
  if (r.seconds_left) line += fmt::format("  {} left", format_seconds(*r.seconds_left));
  if (r.eval_loss) line += fmt::format("  eval loss {:.4f}", *r.eval_loss);
  return line;
}

ConsoleStyle ConsoleStyle::of(std::FILE* stream) {
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  const bool live = !dumb && ::isatty(::fileno(stream)) == 1;
  return {.live = live, .color = live && !is_set("NO_COLOR")};
}

Console::~Console() { clear_bar(); }

void Console::clear_bar() {
  if (bar_shown_) put(out_, clear_line);
  bar_shown_ = false;
}

void Console::note(std::string_view sentence) {
  clear_bar();
  put(notes_, fmt::format("spillway: {}\n", sentence));
}

void Console::started(const RunSummary& run) {
  clear_bar();
  put(out_, fmt::format("{}: {:.1f} M parameters, {}, {} of state, {} of it on disk{}\n", run.model,
                        static_cast<double>(run.parameters) / 1e6, run.dtype, format_bytes(run.state_bytes),
                        format_bytes(run.spilled_bytes), run.spill_dir.empty() ? "" : " in " + run.spill_dir));
  put(out_, fmt::format("{} steps of {} tokens, {} threads, at most {} of memory\n", run.total_steps,
                        run.tokens_per_step, run.threads, format_bytes(run.budget_bytes)));
}

void Console::step(const StepRecord& record) {
  const bool last = record.step == record.total_steps;
  const bool wanted = record.step % logging_steps_ == 0 || record.step == 1 || last || record.eval_loss.has_value();
  std::string text;
  if (bar_shown_) text += clear_line;
  if (wanted) text += line_of(record) + '\n';
  if (style_.live && !last) text += bar_of(record);
  bar_shown_ = style_.live && !last;
  if (!text.empty()) put(out_, text);
}

std::string Console::bar_of(const StepRecord& r) const {
  const std::string left = r.seconds_left ? format_seconds(*r.seconds_left) + " left" : "measuring";
  const double share =
      std::clamp(static_cast<double>(r.step) / static_cast<double>(std::max<std::int64_t>(1, r.total_steps)), 0.0, 1.0);
  std::string words =
      fmt::format(" {:3.0f}%  {}/{}  loss {:.4f}  {}", std::floor(share * 100), r.step, r.total_steps, r.loss, left);
  const std::int64_t columns = columns_of(out_);
  const std::int64_t width = std::clamp<std::int64_t>(columns - std::ssize(words) - 3, 0, 40);
  const auto done = static_cast<std::int64_t>(share * static_cast<double>(width));
  words.resize(static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(words), columns)));
  std::string bar;
  if (width > 0)
    bar = '[' + std::string(static_cast<std::size_t>(done), '=') +
          std::string(static_cast<std::size_t>(width - done), ' ') + ']';
  if (style_.color) bar = std::string(bar_color) + bar + std::string(color_off);
  return std::string(wrap_off) + bar + words + std::string(wrap_on);
}

void Console::finished(const RunEnd& end) {
  clear_bar();
  const std::string result = end.output_dir.empty() ? "stopped; the same command goes on" : "wrote " + end.output_dir;
  put(out_, fmt::format("{} steps in {}, peak memory {}; {}\n", end.steps, format_seconds(end.seconds),
                        format_bytes(end.peak_rss_bytes), result));
}

}  // namespace spillway
