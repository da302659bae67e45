#include "model/programs.h"

#include <array>
#include <functional>
#include <utility>

#include "base/error.h"
#include "model/families.h"
#include "model/head.h"
#include "model/update.h"
#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/columns/columns.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/kv_cache/kv_cache.h"

namespace spillway {
namespace {

std::vector<MicroBatchInputs> record_inputs(Recorder& recorder, const StepShape& shape) {
  std::vector<MicroBatchInputs> inputs;
  for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
    const ValueType tokens{DType::i32, shape.tokens(), 1};
    inputs.push_back({recorder.input(tokens), recorder.input(tokens), recorder.input(tokens)});
  }
  return inputs;
}

Operand record_frequencies(Recorder& recorder, const ModelConfig& config) {
  return config.has_rope() ? recorder.input({DType::f32, config.head_dim / 2, 1}) : Operand{};
}

Attend attend_within(Recorder& recorder, const ModelConfig& config, std::int64_t sequence_length) {
  const AttentionShape shape{sequence_length, config.num_attention_heads, config.num_key_value_heads, config.head_dim};
  return [&recorder, shape](std::int64_t, Operand q, Operand k, Operand v) {
    return k.exists() ? attention(recorder, q, k, v, shape) : packed_attention(recorder, q, shape);
  };
}

// The model from ids to the final norm, some micro-batches through each part before the next.
class Body {
 public:
  Body(Recorder& recorder, const Model& model, Phase phase, std::vector<Tokens> tokens, Attend attend)
      : recorder_(recorder),
        model_(model),
        phase_(phase),
        tokens_(std::move(tokens)),
        attend_(std::move(attend)),
        x_(tokens_.size()) {}

  // Called before the ops of each part are recorded.
  void before_part(std::function<void(const Label& part)> before) { before_ = std::move(before); }

  std::size_t micro_batches() const { return tokens_.size(); }

  // What the head reads, of all micro-batches.
  std::vector<Operand> record() {
    record(0, micro_batches());
    return x_;
  }
  Operand record_one(std::size_t micro_batch) {
    record(micro_batch, micro_batch + 1);
    return x_[micro_batch];
  }

 private:
  void record(std::size_t begin, std::size_t end) {
    begin_ = begin;
    end_ = end;
    for (std::size_t t = 0; t < model_.tiles().size(); ++t) {
      for_each_micro_batch(-1, "embedding", static_cast<std::int32_t>(t), [&](std::size_t m) {
        x_[m] = record_embedding_tile(recorder_, model_, t, tokens_[m], x_[m]);
      });
    }
    for_each_micro_batch(-1, "positions", 0,
                         [&](std::size_t m) { x_[m] = record_positions(recorder_, model_, tokens_[m], x_[m]); });
    for (std::int64_t layer = 0; layer < model_.config().num_hidden_layers; ++layer) {
      for_each_micro_batch(layer, "attention", 0, [&](std::size_t m) {
        x_[m] = record_attention(recorder_, model_, layer, tokens_[m], x_[m], attend_);
      });
      for_each_micro_batch(layer, "mlp", 0,
                           [&](std::size_t m) { x_[m] = record_mlp(recorder_, model_, layer, x_[m]); });
    }
    for_each_micro_batch(-1, "final norm", 0,
                         [&](std::size_t m) { x_[m] = record_final_norm(recorder_, model_, x_[m]); });
  }

  template <typename Part>
  void for_each_micro_batch(std::int64_t layer, std::string_view name, std::int32_t index, const Part& part) {
    if (before_ && begin_ == 0) before_({phase_, static_cast<std::int32_t>(layer), -1, name, index});
    for (std::size_t m = begin_; m < end_; ++m) {
      recorder_.label({phase_, static_cast<std::int32_t>(layer), static_cast<std::int32_t>(m), name, index});
      part(m);
    }
  }

  Recorder& recorder_;
  const Model& model_;
  Phase phase_;
  std::vector<Tokens> tokens_;
  Attend attend_;
  std::function<void(const Label& part)> before_;
  std::vector<Operand> x_;
  std::size_t begin_ = 0;  // micro-batches under way
  std::size_t end_ = 0;
};

std::vector<Tokens> tokens_of(const std::vector<MicroBatchInputs>& inputs, Operand frequencies) {
  std::vector<Tokens> tokens;
  for (const MicroBatchInputs& input : inputs) tokens.push_back({input.ids, input.positions, frequencies});
  return tokens;
}

// One value a chunk of tokens, adjacent, in token order.
std::vector<Operand> record_losses(Recorder& recorder, const Model& model, const StepShape& shape) {
  const std::vector<ValueType> types = loss_types(head_grid(model), shape.tokens());
  std::vector<ValueType> all;
  for (std::int64_t m = 0; m < shape.micro_batches; ++m) all.insert(all.end(), types.begin(), types.end());
  const Operand losses = recorder.local(all);
  std::vector<Operand> by_micro_batch;
  for (std::size_t m = 0; m < static_cast<std::size_t>(shape.micro_batches); ++m) {
    by_micro_batch.push_back(
        {static_cast<ValueId>(index_of(losses.first) + m * types.size()), static_cast<std::int32_t>(types.size())});
  }
  return by_micro_batch;
}

Operand record_loss_sum(Recorder& recorder, const std::vector<Operand>& losses, Phase phase) {
  recorder.label({phase, -1, -1, "loss", 0});
  const Operand all{losses.front().first, losses.front().count * static_cast<std::int32_t>(losses.size())};
  return loss_sum(recorder, std::array{all});
}

// Forward, head and backward of all micro-batches. `update` hears of the head before it begins, and of each part that
// is done.
void record_work(Recorder& recorder, const Model& model, const StepShape& shape, Body& body, TrainingProgram& out,
                 UpdateRecorder& update) {
  const std::vector<Operand> losses = record_losses(recorder, model, shape);
  const Label head{Phase::head, -1, -1, "head", 0};
  const bool late =
      shape.late_head_gradient && shape.micro_batches == 1 && late_gradient_is_smaller(model, shape.tokens());
  const auto seed_of = [&](std::size_t m, Operand x) -> Recorder::Seed {
    Label label = head;
    label.micro_batch = static_cast<std::int32_t>(m);
    if (m == 0) update.part_begins(head);
    return {
        x, record_training_head(recorder, model, {x, out.micro_batches[m].targets, out.scale, losses[m], late}, label)};
  };
  std::vector<Recorder::Seed> seeds;
  if (shape.order == WorkOrder::by_layer) {
    const std::vector<Operand> x = body.record();
    for (std::size_t m = 0; m < x.size(); ++m) seeds.push_back(seed_of(m, x[m]));
  } else {
    for (std::size_t m = 0; m < body.micro_batches(); ++m) {
      seeds = {seed_of(m, body.record_one(m))};
      if (m + 1 < body.micro_batches()) recorder.backward_of(static_cast<std::int32_t>(m), seeds, add_spec);
    }
  }
  out.loss = record_loss_sum(recorder, losses, Phase::head);
  update.part_done(head);
  recorder.backward(seeds, add_spec, [&](const Label& part) { update.part_done(part); });
}

}  // namespace

std::string_view name_of(WorkOrder order) {
  switch (order) {
    case WorkOrder::by_layer: return "layer";
    case WorkOrder::by_micro_batch: return "micro-batch";
  }
  return "?";
}

TrainingProgram record_training(const Model& model, const StepShape& shape, PieceSet chosen,
                                std::vector<KeptGradient> kept) {
  TrainingProgram out;
  out.way = shape.way;
  Recorder recorder(out.program, model.state());
  out.micro_batches = record_inputs(recorder, shape);
  out.inverse_frequencies = record_frequencies(recorder, model.config());
  out.scale = recorder.input({DType::f32, 1, 1});
  UpdateRecorder update(recorder, model, shape.way, std::move(chosen), std::move(kept));
  out.adamw = update.scalars();
  out.max_norm = update.max_norm();
  out.adamw_before = update.scalars_before();
  out.factor_before = update.factor_before();

  Body body(recorder, model, Phase::forward, tokens_of(out.micro_batches, out.inverse_frequencies),
            attend_within(recorder, model.config(), shape.sequence_length));
  body.before_part([&](const Label& part) { update.part_begins(part); });
  record_work(recorder, model, shape, body, out, update);
  UpdateRecorder::Result result = update.finish();
  out.norm = result.norm;
  out.factor = result.factor;
  out.kept = std::move(result.kept);
  recompute(out.program, shape.recompute);
  return out;
}

EvaluationProgram record_evaluation(const Model& model, const StepShape& shape) {
  EvaluationProgram out;
  Recorder recorder(out.program, model.state());
  out.micro_batches = record_inputs(recorder, shape);
  out.inverse_frequencies = record_frequencies(recorder, model.config());
  out.scale = recorder.input({DType::f32, 1, 1});
  const Attend attend = attend_within(recorder, model.config(), shape.sequence_length);
  const std::vector<Operand> x =
      Body(recorder, model, Phase::evaluate, tokens_of(out.micro_batches, out.inverse_frequencies), attend).record();
  const std::vector<Operand> losses = record_losses(recorder, model, shape);
  for (std::size_t m = 0; m < x.size(); ++m) {
    record_evaluation_head(recorder, model, {x[m], out.micro_batches[m].targets, out.scale, losses[m]},
                           {Phase::evaluate, -1, static_cast<std::int32_t>(m), "head", 0});
  }
  out.loss = record_loss_sum(recorder, losses, Phase::evaluate);
  return out;
}

CacheTensors add_cache(Model& model, std::int64_t rows) {
  CacheTensors cache;
  const auto add = [&](std::int64_t layer, std::string_view what) {
    Tensor tensor;
    tensor.name = fmt::format("cache.{}.{}", layer, what);
    tensor.dtype = model.dtype();
    tensor.rows = rows;
    tensor.cols = model.config().key_value_size();
    tensor.committed = false;
    return model.state().add(std::move(tensor), model.cut().piece_elements);
  };
  for (std::int64_t layer = 0; layer < model.config().num_hidden_layers; ++layer) {
    cache.keys.push_back(add(layer, "key"));
    cache.values.push_back(add(layer, "value"));
  }
  return cache;
}

GenerationProgram record_generation(const Model& model, const CacheTensors& cache, std::int64_t rows) {
  GenerationProgram out;
  const ModelConfig& config = model.config();
  Recorder recorder(out.program, model.state());
  out.ids = recorder.input({DType::i32, rows, 1});
  out.positions = recorder.input({DType::i32, rows, 1});
  out.inverse_frequencies = record_frequencies(recorder, config);
  const auto append = [&](TensorId tensor, Operand fresh) {
    const Operand old = recorder.state_tensor(tensor);
    const auto first = static_cast<std::int32_t>(model.state().first_piece(tensor));
    Operand next{recorder.new_version(static_cast<PieceId>(first)).first, old.count};
    for (std::int32_t i = 1; i < old.count; ++i) recorder.new_version(static_cast<PieceId>(first + i));
    kv_append(recorder, old, fresh, out.positions, next);
    return next;
  };
  const Attend attend = [&](std::int64_t layer, Operand q, Operand k, Operand v) {
    if (!k.exists()) {
      const Operand qkv = q;
      const std::int64_t width = config.hidden_size;
      q = columns(recorder, qkv, 0, width);
      k = columns(recorder, qkv, width, width);
      v = columns(recorder, qkv, 2 * width, width);
    }
    const Operand keys = append(cache.keys[static_cast<std::size_t>(layer)], k);
    const Operand values = append(cache.values[static_cast<std::size_t>(layer)], v);
    return kv_attention(recorder, q, keys, values, out.positions,
                        {config.num_attention_heads, config.num_key_value_heads, config.head_dim});
  };
  const std::vector<Operand> x =
      Body(recorder, model, Phase::generate, {{out.ids, out.positions, out.inverse_frequencies}}, attend).record();
  recorder.label({Phase::generate, -1, 0, "last row", 0});
  const Operand last = row(recorder, x.front(), rows - 1);
  out.logits = record_logits(recorder, model, last, {Phase::generate, -1, 0, "head", 0});
  return out;
}

}  // namespace spillway
