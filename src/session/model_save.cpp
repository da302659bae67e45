// Writing a model folder from a state.
#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/file.h"
#include "session/model_files.h"

namespace spillway {
namespace {

constexpr std::int64_t copy_block_bytes = 256 * kib;

struct SavedPiece {
  std::size_t parameter = 0;
  PieceId piece = PieceId::none;
};

// All pieces of all parameters, those that lie in one bundle one after the other.
std::vector<SavedPiece> pieces_to_save(const Model& model, const Layout* layout) {
  std::vector<SavedPiece> pieces;
  const State& state = model.state();
  for (std::size_t p = 0; p < model.parameters().size(); ++p) {
    const TensorId weight = model.state_of(p).weight;
    for (std::int32_t n = 0; n < state.piece_count(weight); ++n)
      pieces.push_back({p, static_cast<PieceId>(static_cast<std::int32_t>(state.first_piece(weight)) + n)});
  }
  if (layout == nullptr) return pieces;
  const auto bundle = [&](const SavedPiece& part) { return layout->piece_places[index_of(part.piece)].bundle; };
  std::stable_sort(pieces.begin(), pieces.end(),
                   [&](const SavedPiece& a, const SavedPiece& b) { return bundle(a) < bundle(b); });
  return pieces;
}

// Masters to stored elements, in their place: what is staged of a block counts in the budget. A bf16 file gets the
// nearest value, ties away from zero, which is the weight itself where training was in bf16.
std::span<const std::byte> narrowed(std::span<float> masters, DType dtype) {
  const std::span<std::byte> bytes = std::as_writable_bytes(masters);
  if (dtype == DType::f32) return bytes;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    const std::uint16_t half = dtype == DType::bf16 ? split_master(masters[i]).hi : round_f16(masters[i]);
    std::memcpy(bytes.data() + 2 * i, &half, sizeof half);
  }
  return bytes.first(2 * masters.size());
}

void copy_durably(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  if (!std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, error))
    throw DeviceError("{}: cannot be written: {}", to.string(), error.message());
  File::open_to_read(to).sync();
}

void copy_other_files(const ModelFolder& from, const std::filesystem::path& to) {
  constexpr std::string_view names[] = {
      "config.json",
      "generation_config.json",
      "tokenizer.json",
      "tokenizer_config.json",
      "special_tokens_map.json",
      "added_tokens.json",
      "tokenizer.model",
      "vocab.json",
      "merges.txt",
      "chat_template.jinja",
  };
  for (const std::string_view name : names) {
    const std::filesystem::path source = from.path() / name;
    std::error_code error;
    if (!std::filesystem::exists(source, error)) continue;
    if (std::filesystem::equivalent(source, to / name, error)) continue;
    copy_durably(source, to / name);
  }
}

// The copy of a tied head is left out: after training it would be the old one, and other tools tie it again.
std::vector<std::string> masks_and_tables(const ModelFiles& files) {
  std::vector<std::string> names = files.extras();
  std::erase(names, "lm_head.weight");
  return names;
}

void copy_tensor(const ModelFolder& from, const std::string& name, ModelFolderWriter& writer) {
  const ModelFolder::Tensor& tensor = *from.find(name);
  std::vector<std::byte> block;
  for (std::int64_t at = 0; at < tensor.entry->bytes; at += copy_block_bytes) {
    block.resize(static_cast<std::size_t>(std::min(copy_block_bytes, tensor.entry->bytes - at)));
    from.read(tensor, at, block);
    writer.write(name, at, block);
  }
}

}  // namespace

std::span<float> MasterReader::read(std::size_t parameter, std::int64_t row_begin, std::int64_t row_end) {
  const State& state = model_.state();
  const ParameterState& tensors = model_.state_of(parameter);
  const Tensor& weight = state.tensor(tensors.weight);
  masters_.resize(static_cast<std::size_t>((row_end - row_begin) * weight.cols));
  if (weight.dtype == DType::f32) {
    source_.read(weight, row_begin, std::as_writable_bytes(std::span(masters_)));
    return masters_;
  }
  high_.resize(masters_.size());
  low_.assign(masters_.size(), 0);
  source_.read(weight, row_begin, std::as_writable_bytes(std::span(high_)));
  if (tensors.low != TensorId::none)
    source_.read(state.tensor(tensors.low), row_begin, std::as_writable_bytes(std::span(low_)));
  for (std::size_t i = 0; i < masters_.size(); ++i) masters_[i] = join_master({high_[i], low_[i]});
  return masters_;
}

void save_model(StateSource& source, const Model& model, const Layout* layout, const ModelFolder& from,
                const ModelFiles& files, const std::filesystem::path& to, const WritePace& pace) {
  copy_other_files(from, to);
  std::vector<SafetensorsTensor> tensors;
  for (std::size_t p = 0; p < files.count(); ++p) {
    const ModelFiles::Entry& entry = files.of(p);
    tensors.push_back({entry.name, entry.tensor->entry->stored_dtype, entry.tensor->entry->shape});
  }
  const std::vector<std::string> kept = masks_and_tables(files);
  for (const std::string& name : kept) {
    const SafetensorsEntry& entry = *from.find(name)->entry;
    tensors.push_back({name, entry.stored_dtype, entry.shape});
  }
  ModelFolderWriter writer(to, tensors);
  for (const std::string& name : kept) copy_tensor(from, name, writer);
  MasterReader masters(source, model);
  for (const SavedPiece& part : pieces_to_save(model, layout)) {
    const ModelFiles::Entry& entry = files.of(part.parameter);
    const Piece& piece = model.state().piece(part.piece);
    const Tensor& tensor = model.state().tensor(piece.tensor);
    for_each_block(tensor, piece, [&](std::int64_t row_begin, std::int64_t row_end) {
      const std::span<const std::byte> stored = narrowed(masters.read(part.parameter, row_begin, row_end), entry.dtype);
      writer.write(entry.name, row_begin * tensor.cols * size_of(entry.dtype), stored);
      if (pace) pace(static_cast<std::int64_t>(stored.size()));
    });
  }
  writer.finish();
}

}  // namespace spillway
