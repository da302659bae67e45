// A run as people see it: a line every logging_steps steps and, on a terminal, a live bar below.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "telemetry/observer.h"

namespace spillway {

// "45 s", "12 min 05 s", "3 h 20 min", "2 d 4 h".
std::string format_seconds(double seconds);

// "step 12/300  loss 4.1234  grad norm 1.234  lr 5.00e-05  1234 tokens/s  memory 400 MiB  …", without line end.
std::string line_of(const StepRecord& record);

struct ConsoleStyle {
  bool live = false;   // redraw a bar with control sequences
  bool color = false;  // never without live
  // By asking the system about this stream: a terminal that is not dumb; NO_COLOR is respected.
  static ConsoleStyle of(std::FILE* stream);
};

// Does not own the streams. Write errors are ignored: a closed pipe must not end a training run.
class Console : public TrainObserver {
 public:
  Console(std::FILE* out, std::FILE* notes, ConsoleStyle style, std::int64_t logging_steps)
      : out_(out), notes_(notes), style_(style), logging_steps_(logging_steps) {}
  ~Console() override;

  void note(std::string_view sentence) override;
  void started(const RunSummary& run) override;
  void step(const StepRecord& record) override;
  void finished(const RunEnd& end) override;

 private:
  std::string bar_of(const StepRecord& record) const;
  void clear_bar();

  std::FILE* out_;
  std::FILE* notes_;
  ConsoleStyle style_;
  std::int64_t logging_steps_;
  bool bar_shown_ = false;
};

}  // namespace spillway
