// The slot files of a run, found by name in directories: spillway-<run id>.<index>-of-<count>.slots.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "store/run_id.h"

namespace spillway {

struct SlotSet {
  RunId run;
  std::vector<std::filesystem::path> paths;  // by the file's index in the run; empty: not found

  bool complete() const;
  // "file 1 of 2 of run 0123… is missing: searched '/a', '/b'"; empty when complete.
  std::string missing(const std::vector<std::filesystem::path>& searched) const;
};

// The name of one file of a run.
std::string slot_file_name(const RunId& run, std::int32_t index, std::int32_t count);

// All sets with a file in these directories, by run id. Directories that do not exist are passed over; UserError when
// one cannot be read. Opens and locks nothing.
std::vector<SlotSet> find_slot_sets(const std::vector<std::filesystem::path>& directories);

// Removes the files of a set, also of an incomplete one, and makes that durable. UserError when a process has one of
// them locked.
void remove_slot_set(const SlotSet& set);

}  // namespace spillway
