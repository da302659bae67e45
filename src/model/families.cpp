#include "model/families.h"

#include <fmt/format.h>

#include "base/error.h"
#include "ops/add/add.h"
#include "ops/embedding/embedding.h"
#include "ops/gelu/gelu.h"
#include "ops/layernorm/layernorm.h"
#include "ops/linear/linear.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/swiglu/swiglu.h"

namespace spillway {
namespace {

// Weights of one layer by the rest of their name.
class LayerWeights {
 public:
  LayerWeights(Recorder& recorder, const Model& model, std::string prefix)
      : recorder_(recorder), model_(model), prefix_(std::move(prefix)) {}

  Operand operator()(std::string_view name) const {
    return recorder_.state_tensor(model_.weight(prefix_ + std::string(name)));
  }
  // Absent when the model has none of that name.
  Operand optional(std::string_view name) const {
    return model_.has(prefix_ + std::string(name)) ? (*this)(name) : Operand{};
  }
  Operand project(std::string_view name, Operand x) const {
    const std::string base(name);
    return linear(recorder_, x, (*this)(base + ".weight"), optional(base + ".bias"),
                  {.weight_out_in = model_.config().family != Family::gpt2});
  }

 private:
  Recorder& recorder_;
  const Model& model_;
  std::string prefix_;
};

Operand llama_attention(Recorder& recorder, const Model& model, std::int64_t layer, const Tokens& tokens, Operand x,
                        const Attend& attend) {
  const ModelConfig& config = model.config();
  const LayerWeights w(recorder, model, fmt::format("model.layers.{}.", layer));
  const Operand n = rmsnorm(recorder, x, w("input_layernorm.weight"), config.norm_epsilon);  // (T, C)
  Operand q = w.project("self_attn.q_proj", n);                                              // (T, H*d)
  Operand k = w.project("self_attn.k_proj", n);                                              // (T, K*d)
  const Operand v = w.project("self_attn.v_proj", n);                                        // (T, K*d)
  if (config.query_key_norm()) {
    q = rmsnorm(recorder, q, w("self_attn.q_norm.weight"), config.norm_epsilon);
    k = rmsnorm(recorder, k, w("self_attn.k_norm.weight"), config.norm_epsilon);
  }
  q = rope(recorder, q, tokens.positions, tokens.inverse_frequencies, config.head_dim);
  k = rope(recorder, k, tokens.positions, tokens.inverse_frequencies, config.head_dim);
  const Operand o = attend(layer, q, k, v);                   // (T, H*d)
  return add(recorder, x, w.project("self_attn.o_proj", o));  // (T, C)
}

Operand llama_mlp(Recorder& recorder, const Model& model, std::int64_t layer, Operand x) {
  const LayerWeights w(recorder, model, fmt::format("model.layers.{}.", layer));
  const Operand n = rmsnorm(recorder, x, w("post_attention_layernorm.weight"), model.config().norm_epsilon);  // (T, C)
  const Operand gate = w.project("mlp.gate_proj", n);                                                         // (T, F)
  const Operand up = w.project("mlp.up_proj", n);                                                             // (T, F)
  return add(recorder, x, w.project("mlp.down_proj", swiglu(recorder, gate, up)));                            // (T, C)
}

Operand gpt2_norm(Recorder& recorder, const Model& model, const LayerWeights& w, const std::string& name, Operand x) {
  return layernorm(recorder, x, w(name + ".weight"), w(name + ".bias"), model.config().norm_epsilon);
}

Operand gpt2_attention(Recorder& recorder, const Model& model, std::int64_t layer, Operand x, const Attend& attend) {
  const LayerWeights w(recorder, model, fmt::format("h.{}.", layer));
  const Operand n = gpt2_norm(recorder, model, w, "ln_1", x);  // (T, C)
  const Operand qkv = w.project("attn.c_attn", n);             // (T, 3*C)
  const Operand o = attend(layer, qkv, {}, {});                // (T, C)
  return add(recorder, x, w.project("attn.c_proj", o));        // (T, C)
}

Operand gpt2_mlp(Recorder& recorder, const Model& model, std::int64_t layer, Operand x) {
  const LayerWeights w(recorder, model, fmt::format("h.{}.", layer));
  const Operand n = gpt2_norm(recorder, model, w, "ln_2", x);       // (T, C)
  const Operand hidden = gelu(recorder, w.project("mlp.c_fc", n));  // (T, F)
  return add(recorder, x, w.project("mlp.c_proj", hidden));         // (T, C)
}

bool is_gpt2(const Model& model) { return model.config().family == Family::gpt2; }

}  // namespace

Operand record_embedding_tile(Recorder& recorder, const Model& model, std::size_t tile, const Tokens& tokens,
                              Operand x) {
  const Tile& rows = model.tiles().at(tile);
  const TensorId embedding = model.weight(embedding_name(model.config()));
  const Operand weight = recorder.state_pieces(embedding, rows.first_piece, rows.pieces);
  return embed_rows(recorder, tokens.ids, weight, rows.row_begin, x);
}

Operand record_positions(Recorder& recorder, const Model& model, const Tokens& tokens, Operand x) {
  if (!is_gpt2(model)) return x;
  return add_positions(recorder, x, recorder.state_tensor(model.weight("wpe.weight")), tokens.positions);
}

Operand record_attention(Recorder& recorder, const Model& model, std::int64_t layer, const Tokens& tokens, Operand x,
                         const Attend& attend) {
  return is_gpt2(model) ? gpt2_attention(recorder, model, layer, x, attend)
                        : llama_attention(recorder, model, layer, tokens, x, attend);
}

Operand record_mlp(Recorder& recorder, const Model& model, std::int64_t layer, Operand x) {
  return is_gpt2(model) ? gpt2_mlp(recorder, model, layer, x) : llama_mlp(recorder, model, layer, x);
}

Operand record_final_norm(Recorder& recorder, const Model& model, Operand x) {
  const LayerWeights w(recorder, model, "");
  if (is_gpt2(model)) return gpt2_norm(recorder, model, w, "ln_f", x);
  return rmsnorm(recorder, x, w("model.norm.weight"), model.config().norm_epsilon);
}

}  // namespace spillway
