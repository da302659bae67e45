#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/file.h"
#include "session/session.h"
#include "session/setup.h"

namespace spillway {
namespace {

void list_folder(const InspectOptions& options, const TextSink& out) {
  const HfConfig config = read_hf_config(std::filesystem::path(options.model) / "config.json");
  const ModelFolder folder(options.model);
  const ModelFiles files(folder, config.model);
  const std::vector<Parameter> parameters = parameters_of(config.model);
  std::int64_t count = 0;
  nlohmann::json list = nlohmann::json::array();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const ModelFiles::Entry& entry = files.of(p);
    count += parameters[p].elements();
    if (options.json) {
      list.push_back({{"name", entry.name},
                      {"dtype", entry.tensor->entry->stored_dtype},
                      {"shape", parameters[p].shape},
                      {"file", entry.tensor->file->path().filename().string()}});
    } else {
      out(fmt::format("{:<60} {:<5} {:>16}  {}\n", entry.name, entry.tensor->entry->stored_dtype,
                      fmt::format("[{}]", fmt::join(parameters[p].shape, ", ")),
                      entry.tensor->file->path().filename().string()));
    }
  }
  if (options.json) {
    out(nlohmann::json{{"model_type", config.model.model_type}, {"parameters", count}, {"tensors", list}}.dump(2) +
        "\n");
    return;
  }
  out(fmt::format("{} {}: {} layers, hidden size {}, vocabulary {}, {} tensors, {:.1f} M parameters, {}\n",
                  config.model.model_type, config.model.architecture, config.model.num_hidden_layers,
                  config.model.hidden_size, config.model.vocab_size, parameters.size(),
                  static_cast<double>(count) / 1e6, format_bytes(folder.tensor_bytes())));
  for (const std::string& note : config.notes) out(note + "\n");
}

// The story of one tensor: schema row, pieces, the ops that use it, and the moves of its bundles in a step.
class TensorStory {
 public:
  TensorStory(const TrainingSetup& setup, std::size_t parameter, const TextSink& out)
      : setup_(setup), parameter_(parameter), out_(out) {}

  void tell() const {
    const Parameter& row = setup_.model.parameters()[parameter_];
    const ModelFiles::Entry& entry = setup_.files.of(parameter_);
    out_(fmt::format("{}: [{}], {} in {}, {}\n", entry.name, fmt::join(row.shape, ", "),
                     entry.tensor->entry->stored_dtype, entry.tensor->file->path().filename().string(),
                     row.decays() ? "with weight decay" : "without weight decay"));
    const ParameterState& tensors = setup_.model.state_of(parameter_);
    for (const TensorId tensor : {tensors.weight, tensors.low, tensors.exp_avg, tensors.exp_avg_sq}) {
      if (tensor != TensorId::none) tell_pieces(tensor);
    }
    tell_ops(tensors.weight);
    if (setup_.planned.fits()) tell_moves(tensors);
  }

 private:
  void tell_pieces(TensorId tensor) const {
    const State& state = setup_.model.state();
    const Tensor& whole = state.tensor(tensor);
    out_(fmt::format("\n{} {}: {} pieces\n", whole.name, name_of(whole.dtype), state.piece_count(tensor)));
    for (std::int32_t n = 0; n < state.piece_count(tensor); ++n) {
      const auto id = static_cast<PieceId>(static_cast<std::int32_t>(state.first_piece(tensor)) + n);
      const Place& place = setup_.planned.layout.piece_places[index_of(id)];
      out_(fmt::format("  {:<50} {:>10}  bundle {} at {}\n", state.describe(id), format_bytes(state.bytes_of(id)),
                       index_of(place.bundle), place.offset_bytes));
    }
  }

  bool touches(const Op& op, TensorId tensor) const {
    const Program& program = setup_.steps.usual().program;
    for (const auto* operands : {&op.reads, &op.writes}) {
      for (const Operand& operand : *operands) {
        if (!operand.exists()) continue;
        const PieceId piece = program.value(operand.first).piece;
        if (piece != PieceId::none && setup_.model.state().piece(piece).tensor == tensor) return true;
      }
    }
    return false;
  }

  void tell_ops(TensorId tensor) const {
    out_("\nops of a step that use it\n");
    for (const Op& op : setup_.steps.usual().program.ops) {
      if (touches(op, tensor)) out_(fmt::format("  {:<16} {}\n", op.spec->name, describe(op.label)));
    }
  }

  void tell_moves(const ParameterState& tensors) const {
    const Plan& plan = setup_.planned.plans.front();
    const State& state = setup_.model.state();
    std::vector<bool> ours(setup_.planned.layout.bundles.size(), false);
    for (const TensorId tensor : {tensors.weight, tensors.low, tensors.exp_avg, tensors.exp_avg_sq}) {
      for (std::int32_t n = 0; tensor != TensorId::none && n < state.piece_count(tensor); ++n) {
        const auto id = index_of(state.first_piece(tensor)) + static_cast<std::size_t>(n);
        ours[index_of(setup_.planned.layout.piece_places[id].bundle)] = true;
      }
    }
    out_(fmt::format("\nstays and moves of a step at {}\n", format_bytes(setup_.choices.budget_bytes)));
    for (const StayId stay : plan.entry.stays) {
      const BundleId bundle = plan.stays[index_of(stay)].bundle;
      if (ours[index_of(bundle)]) out_(fmt::format("  bundle {} is in memory when a step begins\n", index_of(bundle)));
    }
    const Label* label = nullptr;
    for (const Instr& instr : plan.instrs) {
      if (instr.kind == Instr::Kind::run) {
        label = &setup_.steps.usual().program.ops[index_of(instr.op)].label;
        continue;
      }
      if (instr.kind == Instr::Kind::commit) continue;
      const Stay& stay = plan.stays[index_of(instr.stays.front())];
      if (!ours[index_of(stay.bundle)]) continue;
      std::vector<std::int32_t> pages;
      for (const PageId page : stay.pages) pages.push_back(static_cast<std::int32_t>(index_of(page)));
      out_(fmt::format("  {:<6} bundle {}, {}, pages [{}], {}\n", name_of(instr.lane), index_of(stay.bundle),
                       format_bytes(setup_.planned.layout.bundles[index_of(stay.bundle)].bytes), fmt::join(pages, " "),
                       label != nullptr ? "after " + describe(*label) : "at the begin of the step"));
    }
  }

  const TrainingSetup& setup_;
  std::size_t parameter_;
  TextSink out_;
};

}  // namespace

void run_inspect(const InspectOptions& options, const TextSink& out) {
  validate(options);
  if (options.tensor.empty()) {
    list_folder(options, out);
    return;
  }
  TrainOptions train = options.plan_of;
  train.model = options.model;
  const TrainingSetup setup(train);
  const auto& parameters = setup.model.parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (setup.files.of(p).name == options.tensor || parameters[p].name == options.tensor) {
      TensorStory(setup, p, out).tell();
      return;
    }
  }
  std::vector<std::string> names;
  for (std::size_t p = 0; p < parameters.size(); ++p) names.push_back(setup.files.of(p).name);
  const std::string close = nearest(options.tensor, names);
  throw UserError("--tensor: {} is not in {}; {}", options.tensor, options.model,
                  close.empty() ? "leave --tensor out for a list" : "the nearest is " + close);
}

}  // namespace spillway
