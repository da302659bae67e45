#include "telemetry/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/bytes.h"
#include "base/counted.h"
#include "base/error.h"

namespace spillway {
namespace {

// Without wrapping a line that became too long for a narrowed window stays on one line.
constexpr std::string_view wrap_off = "\x1b[?7l";
constexpr std::string_view wrap_on = "\x1b[?7h";
constexpr std::string_view clear_to_end_of_line = "\x1b[K";
constexpr std::string_view clear_to_end_of_screen = "\x1b[J";
constexpr std::chrono::milliseconds redraw_every{100};
constexpr std::size_t most_losses = 64;
constexpr double worth_saying_share = 0.01;  // of a step, that it waited

// One write an update, so that nothing half-drawn is seen.
void put(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

ViewSize size_of(std::FILE* stream) {
  winsize size = {};
  const bool known = ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
  return known ? ViewSize{size.ws_col, size.ws_row} : ViewSize{};
}

std::string_view text_in(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool has_utf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view text = text_in(variable);
    if (!text.empty()) return text.find("UTF-8") != text.npos || text.find("utf8") != text.npos;
  }
  return false;
}

std::string short_time(double seconds) {
  return seconds < 0.1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

// "  waited 0.51 s, 0.31 s of it for read optimizer"; what for is known where events are recorded.
std::string waited(const StepRecord& r) {
  if (r.stall_seconds <= worth_saying_share * r.step_seconds) return {};
  std::string text = fmt::format("  waited {}", short_time(r.stall_seconds));
  if (!r.totals) return text;
  const auto& waits = r.totals->wait_seconds;
  const auto most = std::max_element(waits.begin(), waits.end()) - waits.begin();
  std::string cause(name_of(static_cast<WaitCause>(most)));
  std::replace(cause.begin(), cause.end(), '_', ' ');
  return text + fmt::format(", {} of it for {}", short_time(waits[static_cast<std::size_t>(most)]), cause);
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

std::string share_of_bound(const StepRecord& r) {
  if (!r.lower_bound_seconds || r.step_seconds <= 0) return {};
  const double share = *r.lower_bound_seconds / r.step_seconds;
  return share > 1 ? "faster than the bound" : fmt::format("{:.0f}% of the bound", 100 * share);
}

std::string line_of(const StepRecord& r) {
  std::string line = fmt::format(
      "step {}/{}  loss {:.4f}  grad norm {:.3f}{}  lr {:.2e}  {:.0f} tokens/s  memory {}  disk read {} write {}",
      r.step, r.total_steps, r.loss, r.grad_norm,
      r.clip.empty() ? "" : fmt::format("  clip {}{}", r.clip, r.clipped ? "" : " (under the limit)"), r.learning_rate,
      r.tokens_per_second, format_bytes(r.rss_bytes), format_bytes(r.disk_read_bytes),
      format_bytes(r.disk_write_bytes));
  if (r.link)
    line += fmt::format("  link up {} down {}", format_bytes(r.link->up_bytes), format_bytes(r.link->down_bytes));
  if (r.host_updates + r.device_updates > 0)
    line += fmt::format("  updates {} host {} device", r.host_updates, r.device_updates);
  if (const std::string share = share_of_bound(r); !share.empty()) line += "  " + share;
  line += waited(r);
  if (r.seconds_left) line += fmt::format("  {} left", format_seconds(*r.seconds_left));
  if (r.eval_loss) line += fmt::format("  eval loss {:.4f}", *r.eval_loss);
  return line;
}

ConsoleStyle ConsoleStyle::of(std::FILE* stream) {
  const std::string_view terminal = text_in("TERM");
  const bool live = !terminal.empty() && terminal != "dumb" && ::isatty(::fileno(stream)) == 1;
  return {.live = live, .color = live && text_in("NO_COLOR").empty(), .blocks = has_utf8()};
}

Console::~Console() { clear(); }

// A narrowed terminal may have broken the lines that are there, so the way up is counted in its columns of now.
std::string Console::erased() const {
  if (shown_columns_.empty()) return {};
  const ViewSize size = size_of(out_);
  std::int64_t rows = 0;
  for (const std::int64_t columns : shown_columns_) rows += std::max<std::int64_t>(1, divide_up(columns, size.columns));
  const std::int64_t up = std::min(rows, size.rows) - 1;
  return (up > 0 ? fmt::format("\r\x1b[{}A", up) : "\r");
}

// Over the old one, line by line, so that nothing flickers.
std::string Console::drawn() {
  std::string text = erased();
  text += wrap_off;
  shown_columns_.clear();
  const ViewSize size = size_of(out_);
  const std::vector<std::string> lines = view_of(state_, size);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += "\r\n";
    text += lines[i];
    shown_columns_.push_back(columns_of(lines[i]));
    // After a full line the cursor stands on its last character.
    if (shown_columns_.back() < size.columns) text += clear_to_end_of_line;
  }
  if (shown_columns_.back() < size.columns) text += clear_to_end_of_screen;
  text += wrap_on;
  drawn_at_ = std::chrono::steady_clock::now();
  return text;
}

void Console::clear() {
  if (!shown_columns_.empty()) put(out_, erased() + std::string(clear_to_end_of_screen));
  shown_columns_.clear();
}

// Above the view.
void Console::print(std::FILE* stream, const std::string& text) {
  clear();
  put(stream, text);
}

void Console::note(std::string_view sentence) {
  if (!style_.quiet) print(notes_, fmt::format("spillway: {}\n", sentence));
}

void Console::slow(std::string_view sentence) { print(notes_, fmt::format("spillway: {}\n", sentence)); }

void Console::started(const RunSummary& run) {
  state_.run = run;
  state_.blocks = style_.blocks;
  state_.color = style_.color;
  if (style_.quiet) return;
  print(out_, fmt::format("{}: {:.1f} M parameters, {}, {} of state, {} of it on disk{}\n", run.model,
                          static_cast<double>(run.parameters) / 1e6, run.dtype, format_bytes(run.state_bytes),
                          format_bytes(run.spilled_bytes), run.spill_dirs.empty() ? "" : " in " + run.spill_dirs));
  print(out_, fmt::format("{} of {}, {}, at most {} of memory\n", counted(run.total_steps, "step"),
                          counted(run.tokens_per_step, "token"), counted(run.threads, "thread"),
                          format_bytes(run.budget_bytes)));
}

void Console::step(const StepRecord& record) {
  state_.last = record;
  state_.losses.push_back(record.loss);
  if (state_.losses.size() > most_losses) state_.losses.erase(state_.losses.begin());
  if (style_.quiet) return;
  const bool last = record.step == record.total_steps;
  const bool wanted = record.step % logging_steps_ == 0 || record.step == 1 || last || record.eval_loss.has_value();
  if (!style_.live) {
    if (wanted) put(out_, line_of(record) + '\n');
    return;
  }
  std::string text;
  if (wanted) {
    text =
        erased() + line_of(record) + std::string(clear_to_end_of_line) + "\r\n" + std::string(clear_to_end_of_screen);
    shown_columns_.clear();
  }
  if (!last) text += drawn();
  put(out_, text);
}

void Console::live(const LiveStatus& status) {
  state_.live = status;
  const bool over = state_.last && state_.last->step == state_.run.total_steps;
  if (!style_.live || style_.quiet || state_.run.total_steps == 0 || over) return;
  if (std::chrono::steady_clock::now() - drawn_at_ >= redraw_every) put(out_, drawn());
}

void Console::finished(const RunEnd& end) {
  if (style_.quiet) return;
  const std::string result = end.output_dir.empty() ? "stopped" : "wrote " + end.output_dir;
  print(out_, fmt::format("{} in {}, peak memory {}; {}\n", counted(end.steps, "step"), format_seconds(end.seconds),
                          format_bytes(end.peak_rss_bytes), result));
}

}  // namespace spillway
