#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/steady_clock.h"
#include "session/feed.h"
#include "session/inference.h"
#include "session/sampler.h"
#include "session/session.h"
#include "text/tokenizer.h"

namespace spillway {
namespace {

constexpr std::int64_t prompt_rows = 32;  // tokens of the prompt read at once
// Of a tokenizer that stays: 35, and 18 for each merge, of which Llama 3 has 2.2 a token.
constexpr std::int64_t tokenizer_bytes_per_token = 80;
constexpr std::int32_t one_token = 0;  // programs
constexpr std::int32_t prompt_part = 1;

class Generator {
 public:
  Generator(InferenceModel& model, std::int64_t cache_rows)
      : model_(model),
        cache_(add_cache(model.model, cache_rows)),
        programs_{record_generation(model.model, cache_, 1), record_generation(model.model, cache_, prompt_rows)} {
    logits_.reserve(static_cast<std::size_t>(model_.config.model.vocab_size));
    model_.open({&programs_[0].program, &programs_[1].program});
    for (const std::int32_t program : {one_token, prompt_part}) {
      set_frequencies(*model_.executor, program, at(program).inverse_frequencies, model_.config.model);
    }
  }

  // Appends tokens to the cache; the logits are those after the last of them.
  const std::vector<float>& feed(std::span<const TokenId> tokens) {
    while (tokens.size() > 1) {
      const std::size_t count = std::min(tokens.size(), static_cast<std::size_t>(prompt_rows));
      run(prompt_part, tokens.first(count));
      tokens = tokens.subspan(count);
    }
    if (!tokens.empty()) run(one_token, tokens);
    return logits_;
  }

 private:
  const GenerationProgram& at(std::int32_t program) const { return programs_[static_cast<std::size_t>(program)]; }

  // Fewer tokens than rows stand at the end, so that the last row is always the newest.
  void run(std::int32_t program, std::span<const TokenId> tokens) {
    Executor& executor = *model_.executor;
    const GenerationProgram& step = at(program);
    const std::int64_t rows = program == one_token ? 1 : prompt_rows;
    auto* ids = reinterpret_cast<std::int32_t*>(executor.host_value(program, step.ids));
    auto* positions = reinterpret_cast<std::int32_t*>(executor.host_value(program, step.positions));
    const std::int64_t empty = rows - static_cast<std::int64_t>(tokens.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      ids[r] = r < empty ? 0 : static_cast<std::int32_t>(tokens[static_cast<std::size_t>(r - empty)]);
      positions[r] = r < empty ? -1 : static_cast<std::int32_t>(position_++);
    }
    model_.run(program);
    logits_.clear();
    for (const Operand& tile : step.logits) {
      const auto* from = reinterpret_cast<const float*>(executor.host_value(program, tile));
      logits_.insert(logits_.end(), from, from + step.program.type_of(tile).elements());
    }
  }

  InferenceModel& model_;
  CacheTensors cache_;
  GenerationProgram programs_[2];
  std::int64_t position_ = 0;
  std::vector<float> logits_;
};

std::vector<TokenId> prompt_tokens(const Tokenizer& tokenizer, const GenerateOptions& options) {
  std::vector<TokenId> tokens = tokenizer.encode(options.prompt, true);
  if (tokens.empty() && tokenizer.begin_token()) tokens.push_back(*tokenizer.begin_token());
  if (tokens.empty() && tokenizer.end_token()) tokens.push_back(*tokenizer.end_token());
  if (tokens.empty())
    throw UserError("prompt: it has no tokens, and the tokenizer has no begin token; write some text");
  return tokens;
}

void require_known(const std::vector<TokenId>& prompt, const ModelConfig& config) {
  for (const TokenId id : prompt) {
    if (id < static_cast<std::uint64_t>(config.vocab_size)) continue;
    throw UserError("prompt: the tokenizer gives token id {}, but the model has a vocab_size of {}; leave it out", id,
                    config.vocab_size);
  }
}

bool ends(const ModelConfig& config, const Tokenizer& tokenizer, std::int64_t token) {
  const auto& ids = config.eos_token_ids;
  if (std::find(ids.begin(), ids.end(), token) != ids.end()) return true;
  const auto& stops = tokenizer.stop_tokens();
  if (std::find(stops.begin(), stops.end(), static_cast<TokenId>(token)) != stops.end()) return true;
  return tokenizer.end_token() && static_cast<std::int64_t>(*tokenizer.end_token()) == token;
}

}  // namespace

GenerateReport run_generate(const GenerateOptions& options, const TextSink& sink) {
  validate(options);
  const Tokenizer tokenizer = Tokenizer::load(options.model);
  InferenceModel model({options.model, options.dtype, options.threads, options.memory_bytes, options.spill_dir});
  const ModelConfig& config = model.config.model;
  model.choices.reserved_bytes =
      tokenizer.vocab_size() * tokenizer_bytes_per_token +
      config.vocab_size * (static_cast<std::int64_t>(sizeof(float)) + Sampler::bytes_per_token);
  const std::vector<TokenId> prompt = prompt_tokens(tokenizer, options);
  require_known(prompt, config);
  const auto prompt_count = static_cast<std::int64_t>(prompt.size());
  if (prompt_count >= config.max_position_embeddings) {
    throw UserError("prompt: it has {} tokens, but the model has {} positions, one of them for what comes; shorten it",
                    prompt_count, config.max_position_embeddings);
  }
  const std::int64_t rows =
      prompt_count + std::min(config.max_position_embeddings - prompt_count, options.max_new_tokens);
  Generator generator(model, rows);
  const auto start = SteadyClock::now();
  GenerateReport report;
  report.prompt_tokens = prompt_count;
  report.notes = model.notes;
  Sampler sampler({options.temperature, options.top_k, options.top_p, static_cast<std::uint64_t>(options.seed)});
  StreamDecoder decoder(tokenizer, true);
  // Decoders may strip a space of a text's beginning, which is the prompt's.
  for (const TokenId id : prompt) decoder.push(id);
  std::vector<TokenId> fresh = prompt;
  while (report.new_tokens < rows - prompt_count) {
    const std::int64_t token = sampler.next(generator.feed(fresh));
    if (ends(config, tokenizer, token)) break;
    ++report.new_tokens;
    fresh = {static_cast<TokenId>(token)};
    if (const std::string text = decoder.push(fresh.front()); !text.empty()) sink(text);
  }
  if (const std::string text = decoder.finish(); !text.empty()) sink(text);
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace spillway
