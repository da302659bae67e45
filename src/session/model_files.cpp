#include "session/model_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway {
namespace {

constexpr std::string_view gpt2_prefix = "transformer.";

// Tensors that other tools store beside the parameters and that carry nothing: masks, tables, and a copy of a tied
// head.
bool carries_nothing(std::string_view name, const ModelConfig& config) {
  const auto ends_with = [&](std::string_view end) { return name.ends_with(end); };
  if (ends_with(".attn.bias") || ends_with(".attn.masked_bias") || ends_with("rotary_emb.inv_freq")) return true;
  return config.tie_word_embeddings && name == "lm_head.weight";
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// A piece of a parameter.
struct Part {
  std::size_t parameter = 0;
  PieceId piece = PieceId::none;
};

PieceId nth(const State& state, TensorId tensor, std::int32_t n) {
  return static_cast<PieceId>(static_cast<std::int32_t>(state.first_piece(tensor)) + n);
}

// All pieces of all parameters, those that lie in one bundle one after the other.
std::vector<Part> parts_of(const Layout& layout, const Model& model, TensorId ParameterState::*which) {
  std::vector<Part> parts;
  const State& state = model.state();
  for (std::size_t p = 0; p < model.parameters().size(); ++p) {
    const TensorId tensor = model.state_of(p).*which;
    for (std::int32_t n = 0; n < state.piece_count(tensor); ++n) parts.push_back({p, nth(state, tensor, n)});
  }
  const auto bundle = [&](const Part& part) { return layout.piece_places[index_of(part.piece)].bundle; };
  std::stable_sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) { return bundle(a) < bundle(b); });
  return parts;
}

// Stored elements as fp32.
class ElementReader {
 public:
  explicit ElementReader(const ModelFolder& folder) : folder_(folder) {}

  const std::vector<float>& read(const ModelFiles::Entry& entry, std::int64_t begin, std::int64_t count) {
    const std::int64_t width = size_of(entry.dtype);
    stored_.resize(static_cast<std::size_t>(count * width));
    folder_.read(*entry.tensor, begin * width, stored_);
    values_.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = element(entry.dtype, i);
    const auto bad = std::find_if(values_.begin(), values_.end(), [](float value) { return !std::isfinite(value); });
    if (bad != values_.end()) {
      throw UserError("{}: element {} of tensor {} is {}; weights must be finite numbers",
                      entry.tensor->file->path().string(), begin + (bad - values_.begin()), entry.name, *bad);
    }
    return values_;
  }

 private:
  float element(DType dtype, std::size_t i) const {
    if (dtype == DType::f32) {
      float value = 0;
      std::memcpy(&value, stored_.data() + 4 * i, sizeof value);
      return value;
    }
    std::uint16_t half = 0;
    std::memcpy(&half, stored_.data() + 2 * i, sizeof half);
    return dtype == DType::bf16 ? widen(half) : widen_f16(half);
  }

  const ModelFolder& folder_;
  std::vector<std::byte> stored_;
  std::vector<float> values_;
};

void put_halves(std::span<const float> values, bool low, std::byte* data) {
  auto* const halves = reinterpret_cast<std::uint16_t*>(data);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const SplitMaster split = split_master(values[i]);
    halves[i] = low ? split.lo : split.hi;
  }
}

// The pieces of the tensors that `which` names, block by block, from the elements of their parameters.
void load_parts(Executor& executor, const Layout& layout, const Model& model, const ModelFolder& folder,
                const ModelFiles& files, TensorId ParameterState::*which, const std::function<void()>& between) {
  const State& state = model.state();
  const bool low = which == &ParameterState::low;
  ElementReader reader(folder);
  for (const Part& part : parts_of(layout, model, which)) {
    if (between) between();
    const ModelFiles::Entry& entry = files.of(part.parameter);
    if (low && entry.dtype == DType::bf16) continue;  // low halves are zero, as a new slot is
    const Piece& piece = state.piece(part.piece);
    const Tensor& tensor = state.tensor(piece.tensor);
    executor.visit_piece(part.piece, true, [&](std::byte* data) {
      for_each_block(tensor, piece, [&](std::int64_t row_begin, std::int64_t row_end) {
        const std::vector<float>& values =
            reader.read(entry, row_begin * tensor.cols, (row_end - row_begin) * tensor.cols);
        std::byte* const block = data + (row_begin - piece.row_begin) * tensor.cols * size_of(tensor.dtype);
        if (tensor.dtype == DType::f32) {
          std::memcpy(block, values.data(), values.size() * sizeof(float));
        } else {
          put_halves(values, low, block);
        }
      });
    });
  }
}

}  // namespace

ModelFiles::ModelFiles(const ModelFolder& folder, const ModelConfig& config) {
  const std::string prefix =
      config.family == Family::gpt2 && folder.find(std::string(gpt2_prefix) + embedding_name(config)) != nullptr
          ? std::string(gpt2_prefix)
          : "";
  std::vector<std::string> known;
  for (const Parameter& parameter : parameters_of(config)) {
    const bool head = parameter.name == "lm_head.weight";
    const std::string name = head ? parameter.name : prefix + parameter.name;
    const ModelFolder::Tensor* tensor = folder.find(name);
    if (tensor == nullptr) {
      throw UserError("{}: tensor {} is missing; config.json asks for it with shape {}", folder.path().string(), name,
                      shape_text(parameter.shape));
    }
    const std::string file = tensor->file->path().string();
    if (tensor->entry->shape != parameter.shape) {
      throw UserError("{}: tensor {} has shape {}, but config.json makes it {}", file, name,
                      shape_text(tensor->entry->shape), shape_text(parameter.shape));
    }
    const std::optional<DType> dtype = tensor->entry->dtype();
    if (!dtype || (*dtype != DType::f32 && *dtype != DType::bf16 && *dtype != DType::f16)) {
      throw UserError("{}: tensor {} has dtype {}; weights may be F32, BF16 or F16", file, name,
                      tensor->entry->stored_dtype);
    }
    entries_.push_back({name, tensor, *dtype});
    known.push_back(name);
  }
  std::sort(known.begin(), known.end());
  for (const auto& [name, tensor] : folder.tensors()) {
    if (std::binary_search(known.begin(), known.end(), name)) continue;
    if (carries_nothing(name, config)) {
      extras_.push_back(name);
      continue;
    }
    throw UserError("{}: tensor {} is none that a {} model of this config.json has; remove it, or correct config.json",
                    tensor.file->path().string(), name, config.model_type);
  }
}

void load_weights(Executor& executor, const Layout& layout, const Model& model, const ModelFolder& folder,
                  const ModelFiles& files, const std::function<void()>& between) {
  load_parts(executor, layout, model, folder, files, &ParameterState::weight, between);
  if (model.state_of(0).low == TensorId::none) return;
  load_parts(executor, layout, model, folder, files, &ParameterState::low, between);
}

void require_space(const std::filesystem::path& dir, std::int64_t bytes) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(dir, error);
  if (error || space.available >= static_cast<std::uintmax_t>(bytes)) return;  // where unknown, writing will tell
  throw DeviceError("{}: what is to be written there needs {}, but {} are free; free some space or name another folder",
                    dir.string(), format_bytes(bytes), format_bytes(static_cast<std::int64_t>(space.available)));
}

}  // namespace spillway
