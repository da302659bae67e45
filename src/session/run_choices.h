// How a verb runs: the choices that `auto` and 0 stand for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "executor/accelerator.h"
#include "machine/rates.h"
#include "plan/plan.h"

namespace spillway {

// How steps commit: not at all, some by a plan of their own, or all.
enum class Commits : std::uint8_t { none, some, all };

struct RunChoices {
  DType dtype = DType::f32;
  int threads = 1;
  std::int64_t budget_bytes = 0;
  std::vector<std::filesystem::path> spill_dirs;
  bool huge_pages = true;       // the kernel is asked for them
  std::int64_t ring_steps = 0;  // steps whose events the rings hold; 0: nothing is recorded
  Policy policy = Policy::automatic;
  double settling = default_settling;  // see PlanRequest
  std::vector<PieceId> pinned = {};    // their bundles, see PlanRequest
  Commits commits = Commits::none;
  std::int64_t retained_commits = 0;              // beside the one that is being made
  std::int64_t reserved_bytes = 0;                // of the budget, for what goes on beside the Programs
  bool exports = false;                           // model folders are written while steps go on
  bool lays_pages = false;                        // of the first plan, where there is no device (plan/flat.h)
  std::int64_t most_pages = 0;                    // of the host's memory that plans get; 0: all that the budget has
  std::int64_t device_bytes = 0;                  // of a device's pages; 0: there is none
  LinkRate link = {};                             // to it
  std::shared_ptr<Accelerator> accelerator = {};  // the device; null: there is none, or it is virtual
  std::optional<MachineRates> device_rates = {};  // of an accelerator, as measured
  bool direct = false;                            // moves go by its own path to the disk; see plan/direct.h
  bool chooses_direct = false;                    // or do not, where that is faster
  UpdateRates update = {};                        // of both processors, where they are held to rates
  bool splits_updates = false;                    // some may run on the host beside the device
  double device_updates = 1;                      // the share of the parameters that the device updates
};

// What a run that is given no budget takes of free memory: all less a margin for what others will want.
std::int64_t budget_within(std::int64_t free_bytes);

// `notes` gains a sentence for each choice a user should know of.
RunChoices choose(const std::string& dtype, std::int64_t threads, std::int64_t memory_bytes,
                  const std::vector<std::string>& spill_dir, const std::filesystem::path& default_spill_dir,
                  std::vector<std::string>& notes);

}  // namespace spillway
