// The live view of a run as text: some lines for a terminal of a given size. Pure, so that every size can be looked at.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "telemetry/live.h"
#include "telemetry/record.h"

namespace spillway {

struct ViewSize {
  std::int64_t columns = 80;
  std::int64_t rows = 24;
};

struct ViewState {
  RunSummary run = {};
  LiveStatus live = {};
  std::optional<StepRecord> last = {};  // the latest step
  std::vector<float> losses = {};       // of the latest steps, oldest first
  bool blocks = true;                   // the terminal can show ▁▂▃
  bool color = false;
};

// At most size.columns wide each (control sequences not counted), and fewer than size.rows; one line where there is
// little room.
std::vector<std::string> view_of(const ViewState& state, ViewSize size);

// "▁▂▅▇": at most `width` characters, the lowest loss at the bottom.
std::string sparkline(std::span<const float> losses, std::int64_t width);

// How many columns the text takes: UTF-8 characters of width 1, control sequences none.
std::int64_t columns_of(std::string_view text);

}  // namespace spillway
