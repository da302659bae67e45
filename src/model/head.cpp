#include "model/head.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "base/error.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/linear/linear.h"
#include "ops/round/round.h"

namespace spillway {
namespace {

struct Rows {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

std::vector<Rows> cut(Rows all, std::int64_t size) {
  std::vector<Rows> parts;
  for (std::int64_t at = all.begin; at < all.begin + all.count; at += size) {
    parts.push_back({at, std::min(size, all.begin + all.count - at)});
  }
  return parts;
}

Operand part(const Operand& whole, std::size_t i) { return {static_cast<ValueId>(index_of(whole.first) + i), 1}; }

// Records the head of one micro-batch; every chunk and tile is a segment of its own.
class HeadRecorder {
 public:
  HeadRecorder(Recorder& recorder, const Model& model, const HeadOperands& head, const Label& label)
      : recorder_(recorder),
        model_(model),
        head_(head),
        label_(label),
        grid_(head_grid(model)),
        tokens_(recorder.program().type_of(head.x).rows),
        late_(head.late_gradient) {}

  Operand train() {
    const std::vector<Rows> groups = cut({0, tokens_}, grid_.group_tokens);
    std::vector<ValueType> types;
    for (const Rows& group : groups) types.push_back({model_.dtype(), group.count, model_.config().hidden_size});
    const Operand dx = recorder_.local(types);
    for (std::size_t g = 0; g < groups.size(); ++g) train_group(groups[g], part(dx, g));
    return dx;
  }

  void evaluate() {
    for (const Rows& chunk : cut({0, tokens_}, grid_.chunk_tokens)) {
      const std::vector<Operand> logits = record_chunk_logits(chunk);
      next_segment();
      record_cross_entropy(chunk, logits, {});
    }
  }

 private:
  void next_segment() {
    recorder_.label(label_);
    ++label_.index;
  }

  Operand weight(const Tile& tile) {
    const TensorId head = model_.weight(head_name(model_.config()));
    return recorder_.state_pieces(head, tile.first_piece, tile.pieces);
  }

  std::vector<Operand> record_chunk_logits(const Rows& chunk) {
    std::vector<Operand> logits;
    for (const Tile& tile : model_.tiles()) {
      next_segment();
      logits.push_back(linear(recorder_, head_.x, weight(tile), {},
                              {.out_f32 = true, .row_begin = chunk.begin, .row_count = chunk.count}));
    }
    return logits;
  }

  // `dlogits`: one value a tile, or none for the loss alone.
  void record_cross_entropy(const Rows& chunk, const std::vector<Operand>& logits,
                            const std::vector<Operand>& dlogits) {
    std::vector<Operand> reads{head_.targets, head_.scale};
    reads.insert(reads.end(), logits.begin(), logits.end());
    std::vector<Operand> writes{part(head_.losses, chunk_++)};
    writes.insert(writes.end(), dlogits.begin(), dlogits.end());
    recorder_.record_into(cross_entropy_spec,
                          {{"row_begin", chunk.begin},
                           {"row_count", chunk.count},
                           {"gradient", std::int64_t{!dlogits.empty()}},
                           {"dlogits_bf16", std::int64_t{!dlogits.empty() && model_.dtype() == DType::bf16}}},
                          std::move(reads), std::move(writes));
  }

  void train_group(const Rows& group, Operand dx) {
    const std::vector<Rows> chunks = cut(group, grid_.chunk_tokens);
    std::vector<Operand> dlogits;  // by tile: the chunks below each other
    for (const Tile& tile : model_.tiles()) {
      std::vector<ValueType> types;
      for (const Rows& chunk : chunks) types.push_back({model_.dtype(), chunk.count, tile.row_end - tile.row_begin});
      dlogits.push_back(recorder_.local(types));
    }
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      const std::vector<Operand> logits = record_chunk_logits(chunks[c]);
      std::vector<Operand> writes;
      for (const Operand& tile : dlogits) writes.push_back(part(tile, c));
      next_segment();
      record_cross_entropy(chunks[c], logits, writes);
    }
    Operand sum;
    for (std::size_t t = 0; t < dlogits.size(); ++t) {
      next_segment();
      const Operand tile = weight(model_.tiles()[t]);
      const bool last_in_f32 = t + 1 == dlogits.size() && model_.dtype() == DType::f32;
      sum = record_dx(dlogits[t], tile, sum, last_in_f32 ? dx : Operand{});
      const auto contribute = [&recorder = recorder_, x = head_.x, dlogits = dlogits[t], tile, group] {
        recorder.set_accumulator(tile, linear_dw(recorder, x, dlogits, recorder.accumulator(tile),
                                                 {.row_begin = group.begin, .row_count = group.count}));
      };
      if (late_) {
        recorder_.contribute_later(tile, contribute);
      } else {
        contribute();
      }
    }
    if (model_.dtype() == DType::bf16) recorder_.record_into(round_to_bf16_spec, {}, {sum}, {dx});
  }

  // dX summed over tiles in fp32, in the order of the vocabulary; the last sum goes to `into` where that exists.
  Operand record_dx(Operand dlogits, Operand tile, Operand sum, Operand into) {
    const LinearOptions options{.out_f32 = true};
    if (!into.exists()) return linear_dx(recorder_, dlogits, tile, sum, options);
    recorder_.record_into(linear_dx_spec, {{"weight_out_in", std::int64_t{1}}, {"out_f32", std::int64_t{1}}},
                          {dlogits, tile, sum}, {into});
    return into;
  }

  Recorder& recorder_;
  const Model& model_;
  HeadOperands head_;
  Label label_;
  HeadGrid grid_;
  std::int64_t tokens_;
  bool late_;
  std::size_t chunk_ = 0;
};

}  // namespace

HeadGrid head_grid(const Model& model) {
  const std::int64_t vocab_size = model.config().vocab_size;
  const auto below = [](std::int64_t limit, std::int64_t least, std::int64_t most) {
    const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(limit)));
    return std::clamp(power, least, most);
  };
  const bool large = model.cut().large_head;
  HeadGrid grid;
  grid.chunk_tokens = below((large ? 64 : 8) * mib / vocab_size, 32, large ? 2048 : 512);
  grid.group_tokens =
      std::max(grid.chunk_tokens, below((large ? 128 : 64) * mib / vocab_size, 256, large ? 2048 : 1024));
  return grid;
}

std::vector<ValueType> loss_types(const HeadGrid& grid, std::int64_t tokens) {
  std::vector<ValueType> types;
  for (const Rows& group : cut({0, tokens}, grid.group_tokens)) {
    for (const Rows& chunk : cut(group, grid.chunk_tokens)) types.push_back({DType::f32, chunk.count, 1});
  }
  return types;
}

bool late_gradient_is_smaller(const Model& model, std::int64_t tokens) {
  const ModelConfig& config = model.config();
  const bool tied = head_name(config) == embedding_name(config);
  if (!tied || tokens > head_grid(model).group_tokens) return false;
  const std::int64_t kept_bytes = tokens * (config.vocab_size + config.hidden_size) * size_of(model.dtype());
  return kept_bytes < config.vocab_size * config.hidden_size * size_of(DType::f32);
}

Operand record_training_head(Recorder& recorder, const Model& model, const HeadOperands& head, Label label) {
  return HeadRecorder(recorder, model, head, label).train();
}

void record_evaluation_head(Recorder& recorder, const Model& model, const HeadOperands& head, Label label) {
  HeadRecorder(recorder, model, head, label).evaluate();
}

std::vector<Operand> record_logits(Recorder& recorder, const Model& model, Operand x, Label label) {
  std::vector<Operand> logits;
  for (const Tile& tile : model.tiles()) {
    recorder.label(label);
    ++label.index;
    const Operand weight =
        recorder.state_pieces(model.weight(head_name(model.config())), tile.first_piece, tile.pieces);
    logits.push_back(recorder.record1(linear_spec, {{"weight_out_in", std::int64_t{1}}, {"out_f32", std::int64_t{1}}},
                                      {x, weight, Operand{}}, true));
  }
  return logits;
}

}  // namespace spillway
