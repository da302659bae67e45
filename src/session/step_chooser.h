// How the steps of a training run are worked through, which way those that clip go, and beside a device where updates
// run: one choice after another is planned, and what is fastest in virtual time is taken. No bit depends on it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "session/step_planner.h"

namespace spillway {

class StepChooser {
 public:
  // Fills in `work`, `choices` and, by the planner, what is planned. Both outlive it.
  StepChooser(TrainingSetup& setup, StepPlanner& planner) : setup_(setup), planner_(planner) {}

  // With `near`, which was chosen for options that differ little, less is tried beside it: for an estimate.
  void choose(const WorkChoice* near);

  // On the steps as they are planned at last; may be empty.
  std::string note_on_work() const;
  // With the rates that are known without measuring, or assumed; endless for a way that is not planned. Updates alone
  // run from rest to rest; a deferred step has its share of those that complete the updates of steps that commit.
  ClipCosts simulated_clip_costs() const;

 private:
  void choose_on_path(const WorkChoice* near);
  // What is planned, to go back to from what is tried instead.
  struct Chosen {
    WorkChosen work;
    std::vector<UpdateWay> ways;
    double device_updates = 0;
    bool direct = false;
    double cost = 0;
  };
  Chosen chosen() const;
  void go_back_unless_faster(const Chosen& before);
  WorkLimits work_limits() const;
  UpdateWay way_to_search(const WorkChoice& first);
  std::vector<UpdateWay> first_ways(const WorkChoice& choice) const;
  std::optional<WorkChoice> near_with_room(const WorkChoice& near);
  std::optional<WorkChoice> choice_with_room();
  void choose_steps(const std::optional<WorkChoice>& before);

  // Of steps that go these ways, what is taken for them and what the usual one takes without clips.
  struct WayChosen {
    WorkChosen work;
    std::vector<UpdateWay> ways;
    double seconds = 0;
  };
  void choose_way();
  bool is_searched(const std::vector<UpdateWay>& ways) const { return ways == std::vector{searched_way_}; }
  // With this share of the work of choosing that is left.
  std::optional<WayChosen> try_ways(const std::vector<UpdateWay>& ways, double share = 1);
  std::optional<WorkChosen> plan_best_of(const std::vector<UpdateWay>& ways, double share = 1);
  void take_work(const WorkChosen& chosen);
  bool may_write_as(const std::vector<UpdateWay>& ways) const;

  bool choose_all_on_device();
  std::optional<WorkChoice> first_on_device() const;
  double seconds_saved_by_host() const;
  void choose_updates();
  void try_device_share(double share);
  void choose_share();

  TrainingSetup& setup_;
  StepPlanner& planner_;
  std::int64_t most_ops_ = most_ops_for_work;  // to be planned while the steps are chosen
  std::int64_t ops_before_ = 0;                // planned before their choice began
  UpdateWay searched_way_ = UpdateWay::after;  // that steps which clip are chosen for at first
};

// Where updates run beside a device; empty without one.
std::string note_on_updates(const TrainingSetup& setup);

}  // namespace spillway
