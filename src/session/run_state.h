// What a run is at the end of a step, beside its tensors: where it stands, and what it was given. Part of every commit
// and of every full export, as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "ops/adamw/adamw.h"
#include "session/options.h"

namespace spillway {

inline constexpr std::int64_t run_state_version = 1;

struct RunState {
  // Where it stands. The order of the data is a pure function of seed and position, so these and the seed (an option)
  // are all of its random state and its data cursor; the position in the schedule is the step.
  std::int64_t step = 0;       // optimizer steps done
  std::string branch;          // new where a run starts, or goes on from what it was given or had left; then kept
  std::int64_t sequences = 0;  // of the data, taken since the first step
  AdamwProducts products;

  // What it was given. Values as text, by the names a user knows.
  std::map<std::string, std::string> model;    // of config.json
  std::map<std::string, std::string> options;  // the effective ones of the run
  std::int64_t data_tokens = 0;
  std::string data_hash;    // of all token ids; empty where no step reads any
  std::string numeric_key;  // what besides the Program decides bits: instruction set, library, grid sizes
  std::string plan_hash;    // of the plan that wrote it; another one may go on
};

// What config.json says that a run depends on, by its keys.
std::map<std::string, std::string> facts_of(const ModelConfig& config);
// All options with their effective values.
std::map<std::string, std::string> texts_of_options(const TrainOptions& options);
// Of this processor, this build and its libraries.
std::string numeric_key();

std::string json_of(const RunState& state);
// Throws UserError, naming `file`, whatever the text.
RunState parse_run_state(std::string_view text, std::string_view file);

// Whether `now` (whose position does not matter) may go on from `then`. UserError names what differs in the model, the
// data, the order of the data or the dtype, and, unless `allow_numeric_change`, in the numeric key. What may change is
// returned, a sentence each, when it changes how training goes on: "learning_rate is 1e-4, and was 5e-5".
// `source` names where `then` comes from: "the commit of step 12".
std::vector<std::string> check_resumable(const RunState& then, const RunState& now, bool allow_numeric_change,
                                         std::string_view source);

// What makes `now` another run than `then`: "learning_rate is 1e-4, and was 5e-5", of the model, the data, or an option
// that the weights depend on, their number of steps and the processor aside. Empty: none.
std::string difference_of(const RunState& then, const RunState& now);

}  // namespace spillway
