#include "session/portable.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "session/folder_checksums.h"

namespace spillway {
namespace {

constexpr std::int64_t state_limit_bytes = 4 * mib;

std::set<TensorId> weights_and_lows(const Model& model) {
  std::set<TensorId> tensors;
  for (std::size_t p = 0; p < model.parameters().size(); ++p) {
    tensors.insert(model.state_of(p).weight);
    tensors.insert(model.state_of(p).low);
  }
  return tensors;
}

std::string master_name(const Model& model, std::size_t parameter) {
  return model.state().tensor(model.state_of(parameter).weight).name + ".master";
}

// What of the masters a model file of another dtype loses goes beside the optimizer's tensors.
bool needs_master(const ModelFiles& files, std::size_t parameter) { return files.of(parameter).dtype != DType::f32; }

// The committed tensors beside weights and low halves, which are kept as masters.
std::vector<TensorId> optimizer_tensors(const Model& model) {
  const std::set<TensorId> masters = weights_and_lows(model);
  std::vector<TensorId> tensors;
  for (std::size_t t = 0; t < model.state().tensors().size(); ++t) {
    const auto id = static_cast<TensorId>(t);
    if (model.state().tensor(id).committed && !masters.contains(id)) tensors.push_back(id);
  }
  return tensors;
}

std::vector<SafetensorsTensor> optimizer_entries(const ExportFrom& from) {
  std::vector<SafetensorsTensor> entries;
  for (std::size_t p = 0; p < from.model.parameters().size(); ++p) {
    const Tensor& weight = from.model.state().tensor(from.model.state_of(p).weight);
    if (needs_master(from.files, p)) entries.push_back({master_name(from.model, p), "F32", {weight.rows, weight.cols}});
  }
  for (const TensorId id : optimizer_tensors(from.model)) {
    const Tensor& tensor = from.model.state().tensor(id);
    entries.push_back({tensor.name, std::string(stored_name_of(tensor.dtype)), {tensor.rows, tensor.cols}});
  }
  return entries;
}

// Calls `use(row_begin, row_end)` for the blocks of a tensor.
template <typename Use>
void for_each_block_of(const State& state, TensorId id, const Use& use) {
  for (std::int32_t n = 0; n < state.piece_count(id); ++n) {
    const auto piece = static_cast<PieceId>(static_cast<std::int32_t>(state.first_piece(id)) + n);
    for_each_block(state.tensor(id), state.piece(piece), use);
  }
}

void write_optimizer(StateSource& source, const ExportFrom& from, const std::filesystem::path& to,
                     const WritePace& pace) {
  const State& state = from.model.state();
  SafetensorsWriter writer(to / optimizer_name, optimizer_entries(from), {});
  const auto put = [&](const std::string& name, std::int64_t begin, std::span<const std::byte> bytes) {
    writer.write(name, begin, bytes);
    if (pace) pace(static_cast<std::int64_t>(bytes.size()));
  };
  {
    MasterReader masters(source, from.model);  // gives its memory back before the rest takes some
    for (std::size_t p = 0; p < from.model.parameters().size(); ++p) {
      if (!needs_master(from.files, p)) continue;
      const TensorId weight = from.model.state_of(p).weight;
      for_each_block_of(state, weight, [&](std::int64_t row_begin, std::int64_t row_end) {
        put(master_name(from.model, p), row_begin * state.tensor(weight).cols * 4,
            std::as_bytes(masters.read(p, row_begin, row_end)));
      });
    }
  }
  std::vector<std::byte> bytes;
  for (const TensorId id : optimizer_tensors(from.model)) {
    const Tensor& tensor = state.tensor(id);
    const std::int64_t row_bytes = tensor.cols * size_of(tensor.dtype);
    for_each_block_of(state, id, [&](std::int64_t row_begin, std::int64_t row_end) {
      bytes.resize(static_cast<std::size_t>((row_end - row_begin) * row_bytes));
      source.read(tensor, row_begin, bytes);
      put(tensor.name, row_begin * row_bytes, bytes);
    });
  }
  writer.finish();
}

// Removes the temporary folder unless it was renamed.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& final_path)
      : final_path_(final_path), path_(temporary_name(final_path)) {
    remove(path_);
    std::error_code error;
    if (!std::filesystem::create_directories(path_, error))
      throw DeviceError("{}: cannot be made: {}", path_.string(), error.message());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { remove(path_); }

  const std::filesystem::path& path() const { return path_; }
  void keep() {
    sync_folder(path_);
    remove(final_path_);
    std::error_code error;
    std::filesystem::rename(path_, final_path_, error);
    if (error) throw DeviceError("cannot rename {} to {}: {}", path_.string(), final_path_.string(), error.message());
    sync_folder(final_path_.parent_path());
  }

 private:
  static void remove(const std::filesystem::path& path) {
    std::error_code ignored;  // what is left is overwritten, or in the way of the rename, which then tells
    std::filesystem::remove_all(path, ignored);
  }

  std::filesystem::path final_path_;
  std::filesystem::path path_;
};

// Throws UserError when there is no export to go on from.
void require_full(const std::filesystem::path& folder) {
  std::error_code error;
  if (std::filesystem::exists(folder / run_state_name, error)) {
    if (std::filesystem::exists(folder / optimizer_name, error) ||
        std::filesystem::exists(folder / checksums_name, error))
      return;
    throw UserError(
        "resume_from_checkpoint: {} holds what a run leaves at its end, without optimizer state; name a checkpoint "
        "folder of the run, or give {} as model to begin a new run with these weights",
        folder.string(), folder.string());
  }
  if (!std::filesystem::is_directory(folder, error))
    throw UserError("resume_from_checkpoint: {} is not a folder; name a checkpoint folder, or give auto or none",
                    folder.string());
  if (std::filesystem::exists(folder / "config.json", error))
    throw UserError(
        "resume_from_checkpoint: {} holds weights alone, and no state of a run to go on from; give it as model to "
        "begin a new run with these weights",
        folder.string());
  throw UserError("resume_from_checkpoint: {} holds no checkpoint ({} is missing); name a checkpoint folder",
                  folder.string(), run_state_name);
}

// Throws UserError with the first fault.
void require_sound(const std::filesystem::path& folder) {
  const std::vector<std::string> faults = verify_checksums(folder);
  if (faults.empty()) return;
  throw UserError("{}{}", faults.front(),
                  faults.size() == 1 ? "" : fmt::format(", and {} more faults", faults.size() - 1));
}

}  // namespace

std::string export_name(std::int64_t step) { return fmt::format("checkpoint-{}", step); }

RunState read_run_state(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / run_state_name;
  return parse_run_state(read_small_file(path, state_limit_bytes), path.string());
}

void write_export(StateSource& source, const ExportFrom& from, const RunState* run, const std::filesystem::path& to,
                  const WritePace& pace) {
  TemporaryFolder folder(plain_path(to));
  if (run != nullptr) {
    write_optimizer(source, from, folder.path(), pace);
    write_file_atomically(folder.path() / run_state_name, json_of(*run));
  }
  save_model(source, from.model, from.layout, from.folder, from.files, folder.path(), pace);
  write_checksums(folder.path());
  folder.keep();
}

std::int64_t export_bytes(const ExportFrom& from, bool with_optimizer) {
  std::int64_t bytes = from.folder.tensor_bytes();
  if (!with_optimizer) return bytes;
  for (const SafetensorsTensor& entry : optimizer_entries(from)) {
    std::int64_t size = stored_element_bytes(entry.stored_dtype);
    for (const std::int64_t extent : entry.shape) size *= extent;
    bytes += size;
  }
  return bytes;
}

PortableSource::PortableSource(const std::filesystem::path& folder, const Model& model)
    : checked_((require_full(folder), require_sound(folder), true)),
      run_(read_run_state(folder)),
      model_(model),
      folder_(folder),
      files_(folder_, model.config()),
      optimizer_(folder / optimizer_name) {
  for (const SafetensorsTensor& wanted : optimizer_entries({model, nullptr, folder_, files_})) {
    const SafetensorsEntry* entry = optimizer_.find(wanted.name);
    if (entry == nullptr) throw UserError("{}: tensor {} is missing", optimizer_.path().string(), wanted.name);
    if (entry->shape != wanted.shape || entry->stored_dtype != wanted.stored_dtype)
      throw UserError("{}: tensor {} is {} [{}], and the run needs {} [{}]", optimizer_.path().string(), wanted.name,
                      entry->stored_dtype, fmt::join(entry->shape, ", "), wanted.stored_dtype,
                      fmt::join(wanted.shape, ", "));
  }
  for (std::size_t p = 0; p < model.parameters().size(); ++p) {
    const ParameterState& state = model.state_of(p);
    parameter_of_[model.state().tensor(state.weight).name] = p;
    if (state.low != TensorId::none) parameter_of_[model.state().tensor(state.low).name] = p;
  }
}

void PortableSource::read_masters(std::size_t parameter, std::int64_t begin, std::int64_t count) {
  masters_.resize(static_cast<std::size_t>(count));
  const auto bytes = std::as_writable_bytes(std::span(masters_));
  if (needs_master(files_, parameter)) {
    optimizer_.read(*optimizer_.find(master_name(model_, parameter)), begin * 4, bytes);
  } else {
    folder_.read(*files_.of(parameter).tensor, begin * 4, bytes);
  }
}

void PortableSource::read(const Tensor& tensor, std::int64_t row_begin, std::span<std::byte> into) {
  const auto weight = parameter_of_.find(tensor.name);
  if (weight == parameter_of_.end()) {
    optimizer_.read(*optimizer_.find(tensor.name), row_begin * tensor.cols * size_of(tensor.dtype), into);
    return;
  }
  read_masters(weight->second, row_begin * tensor.cols, static_cast<std::int64_t>(into.size()) / size_of(tensor.dtype));
  if (tensor.dtype == DType::f32) {
    std::memcpy(into.data(), masters_.data(), into.size());
    return;
  }
  const TensorId low = model_.state_of(weight->second).low;
  const bool is_low = low != TensorId::none && model_.state().tensor(low).name == tensor.name;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    const SplitMaster split = split_master(masters_[i]);
    const std::uint16_t half = is_low ? split.lo : split.hi;
    std::memcpy(into.data() + 2 * i, &half, sizeof half);
  }
}

}  // namespace spillway
