// Weights between a model folder and the executor's state: one reduction block at a time, in memory bounded by it.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "formats/safetensors.h"
#include "model/model.h"
#include "session/state_source.h"

namespace spillway {

// Where the parameters of a model lie in a folder's files. Made by checking the files against the schema: UserError
// names a tensor that is missing, has another shape or dtype, or that the model has no place for.
class ModelFiles {
 public:
  ModelFiles(const ModelFolder& folder, const ModelConfig& config);

  struct Entry {
    std::string name;  // in the file
    const ModelFolder::Tensor* tensor = nullptr;
    DType dtype = DType::f32;
  };
  const Entry& of(std::size_t parameter) const { return entries_[parameter]; }
  std::size_t count() const { return entries_.size(); }
  // Tensors of the folder that are no parameters: masks, tables, the copy of a tied head.
  const std::vector<std::string>& extras() const { return extras_; }

 private:
  std::vector<Entry> entries_;  // by parameter
  std::vector<std::string> extras_;
};

// Fills the weights (and, in bf16, the low halves) from the folder. Calls `between` before each piece; what that throws
// ends it. Throws UserError when a weight is NaN or infinite.
void load_weights(Executor& executor, const Layout& layout, const Model& model, const ModelFolder& folder,
                  const ModelFiles& files, const std::function<void()>& between = {});

// Told of bytes that were written, now and then; it may sleep, and what it throws ends the writing.
using WritePace = std::function<void(std::int64_t written_bytes)>;

// Writes a folder with the weights in the dtypes and under the names they came with, masks and tables as they are (the
// copy of a tied head is left out), and the other files of the folder they came from (config, tokenizer, generation
// config) as they are. The weights appear last; when it returns everything is durable. Needs 8 bytes of memory for
// each element of the largest block. The bytes written are the same whatever the source and the layout, which orders
// the reads and may be null.
void save_model(StateSource& source, const Model& model, const Layout* layout, const ModelFolder& from,
                const ModelFiles& files, const std::filesystem::path& to, const WritePace& pace = {});

// Masters of rows of a parameter: its weight, joined with the low half where there is one.
class MasterReader {
 public:
  MasterReader(StateSource& source, const Model& model) : source_(source), model_(model) {}
  // The result may be changed, and is good until the next call.
  std::span<float> read(std::size_t parameter, std::int64_t row_begin, std::int64_t row_end);

 private:
  StateSource& source_;
  const Model& model_;
  std::vector<std::uint16_t> high_;
  std::vector<std::uint16_t> low_;
  std::vector<float> masters_;
};

// Throws DeviceError when the weights of a folder, this many bytes, find no room in `dir`.
void require_space(const std::filesystem::path& dir, std::int64_t bytes);

}  // namespace spillway
