// What a parameter costs on the disk each step when state is fully spilled: the bytes of the plan at the smallest
// budget, by what they hold, divided by the parameters. Plans only; nothing is run.
//   spill_bytes [preset=gpt2-124m] [micro_batches=4] [tokens=1024] [clip=0] [dtype=bf16] [moments=f32] [share=0]
// share: of the in-memory pages; 0 is the smallest budget.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "model/presets.h"
#include "model/programs.h"
#include "plan/plan.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

struct Bytes {
  std::int64_t read = 0;
  std::int64_t written = 0;
  std::int64_t held = 0;
};

// "weights", "low halves", "moments" or "activations and gradients": of the largest part of each bundle.
std::vector<std::string> kinds_of(const Layout& layout, const State& state) {
  std::vector<std::map<std::string, std::int64_t>> parts(layout.bundles.size());
  for (std::size_t p = 0; p < layout.piece_places.size(); ++p) {
    const auto id = static_cast<PieceId>(p);
    const Tensor& tensor = state.tensor(state.piece(id).tensor);
    std::string kind = "weights";
    if (tensor.name.ends_with(".low") || tensor.name.find(".exp_avg") != std::string::npos) kind = "optimizer";
    if (tensor.name.starts_with("grad.")) kind = "gradients";
    parts[index_of(layout.piece_places[p].bundle)][kind] += state.bytes_of(id);
  }
  std::vector<std::string> kinds;
  for (const auto& of_bundle : parts) {
    const auto largest = std::max_element(of_bundle.begin(), of_bundle.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    kinds.push_back(largest == of_bundle.end() ? "activations and gradients" : largest->first);
  }
  return kinds;
}

int bench(const Settings& settings) {
  const std::string preset = settings.text("preset", "gpt2-124m");
  const Preset* const found = find_preset(preset);
  if (found == nullptr) throw UserError("preset: '{}' is none", preset);
  ModelConfig config = found->config;
  if (config.vocab_size == 0) config.vocab_size = config.family == Family::gpt2 ? 50257 : 32000;
  const DType dtype = settings.text("dtype", "bf16") == "f32" ? DType::f32 : DType::bf16;
  const Moments moments = settings.text("moments", "f32") == "8bit" ? Moments::packed : Moments::f32;
  const Model model(config, dtype, Purpose::training, cut_for(moments), moments);
  const StepShape shape{1, settings.integer("tokens", 1024), settings.integer("micro_batches", 4),
                        settings.real("clip", 0) > 0 ? UpdateWay::after : UpdateWay::during};
  const TrainingProgram training = record_training(model, shape);
  const std::vector<const Program*> programs{&training.program};
  const Layout layout = lay_out(programs, model.state(), 0);
  const std::int64_t asked =
      static_cast<std::int64_t>(settings.real("share", 0) * static_cast<double>(in_memory_pages(layout, 0)));
  const std::int64_t pages = std::max(smallest_pages(layout), asked);
  const Plan plan = make_plan(layout, 0, pages, {});

  const std::vector<std::string> kinds = kinds_of(layout, model.state());
  std::map<std::string, Bytes> by_kind;
  for (std::size_t b = 0; b < layout.bundles.size(); ++b) by_kind[kinds[b]].held += layout.bundles[b].bytes;
  for (const Instr& instr : plan.instrs) {
    if (instr.kind == Instr::Kind::run) continue;
    const BundleId bundle = plan.stays[index_of(instr.stays.front())].bundle;
    Bytes& bytes = by_kind[kinds[index_of(bundle)]];
    (instr.kind == Instr::Kind::read ? bytes.read : bytes.written) += layout.pages_of(bundle) * layout.page_bytes;
  }
  const auto parameters = static_cast<double>(model.parameter_count());
  std::printf("%s, %.1f million parameters, pages of %s, %s of %s\n", preset.c_str(), parameters / 1e6,
              format_bytes(layout.page_bytes).c_str(), format_bytes(pages * layout.page_bytes).c_str(),
              format_bytes(in_memory_pages(layout, 0) * layout.page_bytes).c_str());
  double state_bytes = 0;
  for (const auto& [kind, bytes] : by_kind) {
    const auto per = [&](std::int64_t amount) { return static_cast<double>(amount) / parameters; };
    std::printf("  %-26s held %6.2f, read %6.2f, written %6.2f bytes a parameter\n", kind.c_str(), per(bytes.held),
                per(bytes.read), per(bytes.written));
    if (!kind.starts_with("activations")) state_bytes += per(bytes.read + bytes.written);
  }
  std::printf("  state: %.2f bytes a parameter each step\n", state_bytes);
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_bench(argc, argv, spillway::bench::bench); }
