// A run as people see it: a line every logging_steps steps and, on a terminal, a live view below that shows the step
// under way.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/live_view.h"
#include "telemetry/observer.h"

namespace spillway {

// "45 s", "12 min 05 s", "3 h 20 min", "2 d 4 h".
std::string format_seconds(double seconds);

// "75% of the bound", or "faster than the bound", where the rates known when the run began were lower; empty where none
// were known.
std::string share_of_bound(const StepRecord& record);

// "step 12/300  loss 4.1234  grad norm 1.234  lr 5.00e-05  1234 tokens/s  memory 400 MiB  …", without line end.
std::string line_of(const StepRecord& record);

struct ConsoleStyle {
  bool live = false;    // redraw a view with control sequences
  bool color = false;   // never without live
  bool blocks = false;  // the terminal shows UTF-8
  bool quiet = false;   // nothing but a step that takes far too long
  // By asking the system about this stream: a terminal that is not dumb; NO_COLOR is respected.
  static ConsoleStyle of(std::FILE* stream);
};

// Does not own the streams. Write errors are ignored: a closed pipe must not end a training run. The size of the
// terminal is asked for at every redraw, so a resize needs no signal.
class Console : public TrainObserver {
 public:
  Console(std::FILE* out, std::FILE* notes, ConsoleStyle style, std::int64_t logging_steps)
      : out_(out), notes_(notes), style_(style), logging_steps_(logging_steps) {}
  ~Console() override;

  void note(std::string_view sentence) override;
  void started(const RunSummary& run) override;
  void step(const StepRecord& record) override;
  void finished(const RunEnd& end) override;
  void live(const LiveStatus& status) override;
  void slow(std::string_view sentence) override;

 private:
  std::string erased() const;  // what removes the view from the screen
  std::string drawn();         // what puts it there, in place of the last one
  void print(std::FILE* stream, const std::string& text);
  void clear();

  std::FILE* out_;
  std::FILE* notes_;
  ConsoleStyle style_;
  std::int64_t logging_steps_;
  ViewState state_;
  std::vector<std::int64_t> shown_columns_;  // of each line of the view on the screen
  std::chrono::steady_clock::time_point drawn_at_;
};

}  // namespace spillway
