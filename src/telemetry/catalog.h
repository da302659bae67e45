// What the numbers in events stand for: the ops, bundles and instructions of a run's plans, as plain data that fits
// beside the events in a file. Made by the session from Programs, layout and plans; read by every sink.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/events.h"

namespace spillway {

struct CatalogOp {
  std::uint16_t kernel = 0;  // these three: index in Catalog::words
  std::uint16_t phase = 0;
  std::uint16_t part = 0;
  std::int32_t layer = -1;        // -1: not in a layer
  std::int32_t micro_batch = -1;  // -1: of the whole step
  std::int32_t index = 0;         // tells apart segments of one part
};

struct CatalogBundle {
  MemoryTag tag = MemoryTag::activations;
  bool state = false;  // outlives the step
  std::int64_t bytes = 0;
  std::string what = {};  // "model.layers.3.mlp.up_proj.weight", "activations of forward layer 3 mlp"
};

struct CatalogInstr {
  EventLane lane = EventLane::compute;
  std::int32_t subject = -1;             // op on the compute lane, otherwise bundle; -1 for a commit
  std::vector<std::int32_t> stays = {};  // that it touches
};

struct CatalogStay {
  std::int32_t bundle = -1;
  std::int64_t bytes = 0;  // of its pages
  bool at_entry = false;
  bool at_exit = false;
  EventMemory memory = EventMemory::host;
};

struct CatalogPlan {
  std::string name = {};  // "train", "evaluate"
  std::int32_t program = 0;
  std::vector<CatalogInstr> instrs = {};
  std::vector<CatalogStay> stays = {};
  double predicted_seconds = 0;    // of a run, by the simulator; 0: unknown
  double lower_bound_seconds = 0;  // 0: unknown
};

struct Catalog {
  std::int64_t arena_bytes = 0;   // all pages of the host
  std::int64_t device_bytes = 0;  // all pages of the device; 0: there is none
  std::vector<std::string> words = {};
  std::vector<std::vector<CatalogOp>> programs = {};  // ops by program
  std::vector<CatalogBundle> bundles = {};
  std::vector<CatalogPlan> plans = {};

  std::uint16_t intern(std::string_view word);
  // Null when the number is out of range, as in a damaged file.
  const CatalogPlan* plan(std::uint8_t plan) const;
  const CatalogOp* op(std::uint8_t plan, std::int32_t op) const;
  const CatalogBundle* bundle(std::int32_t bundle) const;

  std::int64_t bytes_of(EventMemory memory) const { return memory == EventMemory::host ? arena_bytes : device_bytes; }

  std::string_view phase_of(std::uint8_t plan_number, std::int32_t number) const;  // "" when unknown
  std::string describe_op(std::uint8_t plan_number, std::int32_t number) const;  // "linear_dx of backward layer 3 mlp"
  std::string describe_bundle(std::int32_t number) const;                        // "model.norm.weight (4.00 KiB)"
  std::string describe_move(EventLane lane, std::int32_t number) const;  // "the read of model.norm.weight (…)"
};
std::string describe(const Catalog& catalog, const CatalogOp& op);  // "backward layer 3 mlp micro-batch 1"

// One JSON object, of the form that docs/formats.md gives; made in pieces of text, so that no second copy is held.
std::string json_of(const Catalog& catalog);
// Throws UserError when the text is not one of ours.
Catalog catalog_from_json(std::string_view text);

}  // namespace spillway
