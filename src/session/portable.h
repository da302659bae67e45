// A full checkpoint as a folder that other tools can read: a Hugging Face model folder, with the optimizer's tensors
// and the state of the run beside it. docs/formats.md has its files.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "session/model_files.h"
#include "session/run_state.h"
#include "session/state_source.h"

namespace spillway {

// "checkpoint-12".
std::string export_name(std::int64_t step);
inline constexpr std::string_view run_state_name = "spillway_state.json";
inline constexpr std::string_view optimizer_name = "optimizer.safetensors";

// What a folder says of the run that made it. Throws UserError, naming the file, when it cannot be read.
RunState read_run_state(const std::filesystem::path& folder);

// What an export is made from, beside the tensors.
struct ExportFrom {
  const Model& model;
  const Layout* layout = nullptr;  // orders the reads
  const ModelFolder& folder;
  const ModelFiles& files;
};

// Writes the folder `to`, which must not exist or be a finished export (it is replaced): under a temporary name beside
// it, made durable, then renamed. Without `run` the weights alone. Needs the memory of save_model. Throws DeviceError;
// nothing is left behind then.
void write_export(StateSource& source, const ExportFrom& from, const RunState* run, const std::filesystem::path& to,
                  const WritePace& pace = {});

// The bytes that write_export needs room for.
std::int64_t export_bytes(const ExportFrom& from, bool with_optimizer);

// A full export that is to be resumed from.
class PortableSource final : public StateSource {
 public:
  // Opens the folder and checks every byte against its checksum, and the tensors against the model: UserError says
  // when it holds weights alone, and names what is not as it was written, missing, or has another shape.
  PortableSource(const std::filesystem::path& folder, const Model& model);

  const RunState& run() const { return run_; }
  void read(const Tensor& tensor, std::int64_t row_begin, std::span<std::byte> into) override;

 private:
  void read_masters(std::size_t parameter, std::int64_t begin, std::int64_t count);

  bool checked_;  // first: nothing is opened before it
  RunState run_;
  const Model& model_;
  ModelFolder folder_;
  ModelFiles files_;
  SafetensorsReader optimizer_;
  std::map<std::string, std::size_t> parameter_of_;  // by the names of weights and low halves
  std::vector<float> masters_;
};

}  // namespace spillway
