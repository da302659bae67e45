// What a commit says beside its tensors: enough to go on as if nothing had happened, and to say what has changed since.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

// Facts by name, as a manifest stores them: names of [a-z0-9_.], values of any bytes.
using FactTable = std::map<std::string, std::string, std::less<>>;

// A step that is complete but for its update: gradients are state of the commit, and these are its scalars.
struct PendingUpdate {
  double norm = 0;         // global norm of the gradients
  double clip_factor = 1;  // what they will be multiplied by
  std::string scalars;     // the bytes of the update's input values
  bool operator==(const PendingUpdate&) const = default;
};

struct CommitFacts {
  // Progress.
  std::int64_t step = 0;         // steps that are complete; the position in the schedule
  std::int64_t total_steps = 0;  // the schedule's length
  std::int64_t sequence = 0;     // the next sequence of the data to be read: the cursor
  std::uint64_t seed = 0;        // of the order of the data and of initialisation
  std::string random_state;      // of generators that go on, if there are any
  std::int64_t updates = 0;      // of the optimizer, and its running products of the betas
  double beta1_product = 1;
  double beta2_product = 1;
  std::optional<PendingUpdate> pending;

  // What it belongs to. Compared as text; a resume names the one that differs.
  std::string model;        // config.json as the run understood it
  std::string data;         // what identifies the data set: files, sizes, checksums, tokenizer
  std::string config;       // the effective options, as run.yaml has them
  std::string numeric_key;  // instruction set, library versions, sizes of grids
  std::uint64_t plan_hash = 0;

  FactTable extra;  // of the caller's own; names must not be those above

  bool operator==(const CommitFacts&) const = default;
};

// Doubles keep their bits, integers are decimal.
FactTable table_of(const CommitFacts& facts);
// Throws DeviceError, beginning with `source`, when a fact is missing or is not of its kind.
CommitFacts facts_of(const FactTable& table, std::string_view source);

}  // namespace spillway
