#include "session/run_exports.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "session/portable.h"
#include "session/run_folder.h"
#include "session/state_source.h"

namespace spillway {

std::filesystem::path RunExports::folder_of(std::int64_t step) const {
  return std::filesystem::path(setup_.options.output_dir) / export_name(step);
}

bool RunExports::is_due(std::int64_t step) const {
  return setup_.options.export_steps > 0 && step % setup_.options.export_steps == 0;
}

bool RunExports::is_missing(const RunState& state, const RunBranches& branches) const {
  if (!is_due(state.step)) return false;
  const std::vector<ExportFolder> exports = exports_in(setup_.options.output_dir);
  const auto same = [&](const ExportFolder& folder) { return folder.step == state.step; };
  const auto found = std::find_if(exports.begin(), exports.end(), same);
  return found == exports.end() || (found->full && !branches.hold_export(found->path));
}

void RunExports::tell_cut_short(const std::vector<std::int64_t>& steps, std::int64_t begin_step) const {
  for (const std::int64_t step : steps) {
    if (step < begin_step)
      observer_.note(
          fmt::format("the export of step {} was cut short, and is not made again: the run is beyond it", step));
  }
}

void RunExports::expect(const RunState& state) {
  SPILLWAY_CHECK(!expected_, "the export of step {} waits already", expected_->step);
  expected_ = state;
}

void RunExports::follow(const std::shared_ptr<SlotStore>& slots, Committer& committer, std::int64_t durable_step) {
  if (export_ && export_->done()) {
    export_->wait();
    observer_.note(fmt::format("exported step {} to {}", export_->step(), folder_of(export_->step()).string()));
    export_ = nullptr;
  }
  if (!expected_ || durable_step < expected_->step || export_) return;
  const std::vector<CommitEntry> commits = committer.commits();
  const auto entry =
      std::find_if(commits.begin(), commits.end(), [&](const auto& c) { return c.step == expected_->step; });
  if (entry == commits.end()) return;  // about to be there
  export_ = std::make_unique<BackgroundExport>(slots, committer.lease(entry->generation), from(), *expected_,
                                               setup_.options.save_only_model, folder_of(expected_->step));
  expected_.reset();
}

void RunExports::wait() {
  if (export_) export_->wait();
}

void RunExports::write(Executor& executor, const RunState& state) const {
  ExecutorSource source(executor, setup_.model.state());
  write_export(source, from(), setup_.options.save_only_model ? nullptr : &state, folder_of(state.step));
}

}  // namespace spillway
