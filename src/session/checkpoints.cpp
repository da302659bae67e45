#include "session/checkpoints.h"

#include "base/error.h"
#include "session/run_folder.h"

namespace spillway {

void RunCheckpoints::claim() { claim_output(setup_.options, false); }

std::unique_ptr<PortableSource> RunCheckpoints::newest_export() {
  for (const ExportFolder& folder : exports_in(setup_.options.output_dir)) {
    if (!folder.full) continue;
    try {
      return std::make_unique<PortableSource>(folder.path, setup_.model);
    } catch (const Error& error) {
      observer_.note(fmt::format("passed over {}: {}", folder.path.string(), error.what()));
    }
  }
  return nullptr;
}

void RunCheckpoints::take(std::unique_ptr<PortableSource> source, const std::string& name, const RunState& now) {
  for (const std::string& note : check_resumable(source->run(), now, setup_.options.allow_numeric_change, name))
    observer_.note(note);
  begin_ = now;
  begin_.step = source->run().step;
  begin_.sequences = source->run().sequences;
  begin_.products = source->run().products;
  source_ = std::move(source);
  observer_.note(fmt::format("going on after step {}, from {}", begin_.step, name));
}

void RunCheckpoints::find(const RunState& now) {
  begin_ = now;
  const std::string& wanted = setup_.options.resume_from_checkpoint;
  if (wanted == "none") return;
  if (wanted != "auto") return take(std::make_unique<PortableSource>(wanted, setup_.model), wanted, now);
  if (auto source = newest_export()) {
    const std::string name =
        (std::filesystem::path(setup_.options.output_dir) / export_name(source->run().step)).string();
    take(std::move(source), name, now);
  }
}

void RunCheckpoints::restore(Executor& executor) {
  restore_state(executor, setup_.planned.layout, setup_.model.state(), *source_);
  source_ = nullptr;
}

bool RunCheckpoints::export_is_due(std::int64_t step) const {
  return setup_.options.export_steps > 0 && step % setup_.options.export_steps == 0;
}

void RunCheckpoints::after_step(Executor& executor, const RunState& state) {
  if (!export_is_due(state.step)) return;
  ExecutorSource source(executor, setup_.model.state());
  const ExportFrom from{setup_.model, &setup_.planned.layout, setup_.folder, setup_.files};
  write_export(source, from, setup_.options.save_only_model ? nullptr : &state,
               std::filesystem::path(setup_.options.output_dir) / export_name(state.step));
}

}  // namespace spillway
