#include "session/options.h"

#include <algorithm>

#include "base/error.h"

namespace spillway {
namespace {

constexpr std::string_view paths_group = "Paths";
constexpr std::string_view length_group = "Length and batches";
constexpr std::string_view optimizer_group = "Optimizer";
constexpr std::string_view run_group = "Run";
constexpr std::string_view checkpoint_group = "Stopping and resuming";
constexpr std::string_view machine_group = "Machine";
constexpr std::string_view shape_group = "Shape (config.json names; 0: as the preset)";
constexpr std::string_view sampling_group = "Sampling";

OptionLimits at_least(double least) { return {.least = least}; }
OptionLimits above(double least) { return {.least = least, .least_open = true}; }
OptionLimits share() { return {.least = 0, .most = 1, .most_open = true}; }
// Beyond any model; products of a few sizes stay far from overflow.
OptionLimits size_limits() { return {.least = 0, .most = 2147483647}; }
// Micro-batches are planned one by one, and so are the parts of a long one.
OptionLimits batch_limits() { return {.least = 1, .most = 65536}; }
OptionLimits one_of(std::vector<std::string_view> choices) { return {.choices = std::move(choices)}; }

constexpr std::int64_t most_threads = 1024;
constexpr double most_commits = 64;  // each takes the space of the whole state

// The rows that every verb which runs a model has.
template <typename Options>
void add_machine_rows(std::vector<Option>& rows, Options& o) {
  rows.push_back({"dtype", machine_group, "auto, f32 or bf16; auto is bf16 where the processor has it in hardware",
                  &o.dtype, one_of({"auto", "f32", "bf16"})});
  rows.push_back({"threads",
                  machine_group,
                  "compute threads; 0: one a processor",
                  &o.threads,
                  {.least = 0, .most = most_threads}});
  rows.push_back({"memory", machine_group,
                  "most the whole process may have resident, as 600MiB or 1.7GiB; auto: the free memory minus a margin",
                  &o.memory_bytes, at_least(0), OptionUnit::bytes});
  rows.push_back(
      {"spill_dir", machine_group, "folder for what does not fit; default: beside the output", &o.spill_dir});
}

void require(bool given, std::string_view flag, std::string_view what) {
  if (!given) throw UserError("{} is missing; give it {}", flag, what);
}

// The hidden keys reach the page pool and the store, which check them as invariants.
void validate_experiments(const TrainOptions& o) {
  const auto is_page = [](std::int64_t bytes) { return bytes >= 4096 && (bytes & (bytes - 1)) == 0; };
  if (o.page_size_bytes != 0 && !is_page(o.page_size_bytes))
    throw UserError("page_size is {}; it must be a power of two, at least 4096", o.page_size_bytes);
  if (o.io_request_size_bytes % 4096 != 0)
    throw UserError("io_request_size is {}; it must be a multiple of 4096", o.io_request_size_bytes);
}

void validate_device(const TrainOptions& o) {
  const bool is_virtual = o.device == "virtual";
  const bool is_cuda = o.device == "cuda";
  for (const auto& [key, value] : {std::pair("device_memory", o.device_memory_bytes), std::pair("link_up", o.link_up),
                                   std::pair("link_down", o.link_down)}) {
    if (!is_virtual && value != 0 && !(is_cuda && key == std::string_view("device_memory")))
      throw UserError("{} is {} but device is {}, which {}; give --device virtual or leave {} out", key, value,
                      o.device, is_cuda ? "has a link of its own" : "has none", key);
  }
  const bool has_rates = o.update_rate_cpu > 0 || o.update_rate_device > 0;
  if ((!is_virtual && has_rates) || (!is_virtual && !is_cuda && o.update_on != "auto"))
    throw UserError(
        "update_on and the update rates are of a device, but device is {}; give --device virtual or leave them out",
        o.device);
  if (!is_virtual && !is_cuda && o.device_direct != "false")
    throw UserError("device_direct is {} but device is {}, which has no other memory; leave it out", o.device_direct,
                    o.device);
  if (!is_virtual && !is_cuda) return;
  if (is_virtual && o.device_memory_bytes == 0 && o.machine.empty())
    throw UserError("device_memory is missing; give it the size of the virtual device, as 512MiB");
  if (o.clip_mode == "speculative")
    throw UserError(
        "clip_mode is speculative but device is {}, where no step can be taken back; use auto, after or deferred",
        o.device);
}

}  // namespace

std::vector<Option> options_of(TrainOptions& o) {
  std::vector<Option> rows = {
      {"model", paths_group, "model folder: config.json, safetensors, tokenizer", &o.model},
      {"data", paths_group, ".txt, .jsonl or .npy files to train on", &o.data},
      {"output_dir", paths_group, "folder to write; a run in it that was stopped goes on", &o.output_dir},

      {"max_steps", length_group, "optimizer steps; -1: by num_train_epochs; 0: load and write only", &o.max_steps,
       at_least(-1)},
      {"num_train_epochs",
       length_group,
       "passes over the data when max_steps is -1",
       &o.num_train_epochs,
       {.least = 0, .most = 1e6, .least_open = true}},
      {"per_device_train_batch_size", length_group, "sequences in a micro-batch", &o.per_device_train_batch_size,
       batch_limits()},
      {"gradient_accumulation_steps",
       length_group,
       "micro-batches in a step",
       &o.gradient_accumulation_steps,
       {.least = 1, .most = most_micro_batches}},
      {"max_seq_len", length_group, "tokens in a sequence; 0: the model's limit, at most 1024", &o.max_seq_len,
       at_least(0)},

      {"learning_rate", optimizer_group, "peak rate of AdamW", &o.learning_rate, at_least(0)},
      {"lr_scheduler_type", optimizer_group, "constant, linear, cosine or warmup_stable_decay", &o.lr_scheduler_type,
       one_of({"constant", "linear", "cosine", "warmup_stable_decay"})},
      {"warmup_steps", optimizer_group, "steps of linear warmup from 0", &o.warmup_steps, at_least(0)},
      {"decay_steps", optimizer_group, "last steps that decay, for warmup_stable_decay; -1: a tenth of all",
       &o.decay_steps, at_least(-1)},
      {"weight_decay", optimizer_group, "on tensors of two or more dimensions", &o.weight_decay, at_least(0)},
      {"adam_beta1", optimizer_group, "decay of the first moment", &o.adam_beta1, share()},
      {"adam_beta2", optimizer_group, "decay of the second moment", &o.adam_beta2, share()},
      {"adam_epsilon", optimizer_group, "added to the root of the second moment", &o.adam_epsilon, above(0)},
      {"max_grad_norm", optimizer_group, "clip the global gradient norm to this; 0: off", &o.max_grad_norm,
       at_least(0)},
      {"moments", optimizer_group, "f32, or 8bit: a quarter of their bytes on the disk and in memory; changes numbers",
       &o.moments, one_of({"f32", "8bit"})},
      {"clip_mode", optimizer_group,
       "when a step that clips updates: after backward, deferred to the next forward, or speculative, during backward; "
       "auto: by what costs least. No number changes",
       &o.clip_mode, one_of({"auto", "after", "deferred", "speculative"})},

      {"seed", run_group, "of the shuffle", &o.seed, at_least(0)},
      {"shuffle", run_group, "take the windows of the data in a seeded random order", &o.shuffle},
      {"eval_data", run_group, "files to evaluate on", &o.eval_data},
      {"eval_steps", run_group, "evaluate every so many steps; 0: after the last one", &o.eval_steps, at_least(0)},
      {"logging_steps", run_group, "print a line every so many steps", &o.logging_steps, at_least(1)},

      {"save_steps", checkpoint_group, "commit every so many steps; 0: as often as costs little; -1: never",
       &o.save_steps, at_least(-1)},
      {"save_total_limit",
       checkpoint_group,
       "commits that are kept",
       &o.save_total_limit,
       {.least = 1, .most = most_commits}},
      {"export_steps", checkpoint_group, "write output_dir/checkpoint-STEP every so many steps; 0: never",
       &o.export_steps, at_least(0)},
      {"save_only_model", checkpoint_group, "exports hold the weights alone, and cannot be resumed from",
       &o.save_only_model},
      {"resume_from_checkpoint", checkpoint_group,
       "auto: what output_dir holds, if anything; none: start anew; or a checkpoint folder", &o.resume_from_checkpoint},
      {"allow_numeric_change", checkpoint_group, "resume on a processor or library that rounds differently",
       &o.allow_numeric_change},
      {"trace", run_group, "write a trace of the last steps to this file, for Perfetto or chrome://tracing", &o.trace},
      {"trace_steps", run_group, "steps that the trace keeps", &o.trace_steps, {.least = 1, .most = 1000}},
      {"report_to", run_group, "tensorboard: write event files; or none", &o.report_to,
       one_of({"tensorboard", "none"})},
      {"logging_dir", run_group, "folder of the event files, of this run alone; default: OUTPUT_DIR/runs",
       &o.logging_dir},
      {"metrics_address", run_group,
       "serve /metrics for Prometheus and /healthz there, as 127.0.0.1:9400; default: nowhere", &o.metrics_address},
  };
  add_machine_rows(rows, o);
  rows.push_back({"device", machine_group,
                  "where ops run: cpu; cuda, an NVIDIA GPU; or virtual, a memory apart behind a link, to try a machine "
                  "with three tiers",
                  &o.device, one_of({"cpu", "cuda", "virtual"})});
  rows.push_back({"device_memory", machine_group,
                  "bytes of the device, beside `memory`; auto: what is free on it, or as `machine` says",
                  &o.device_memory_bytes, at_least(0), OptionUnit::bytes});
  rows.push_back({"link_up", machine_group,
                  "bytes a second to the virtual device, as 8GiB; auto: as `machine` says, or 8 GB/s", &o.link_up,
                  at_least(0), OptionUnit::bytes});
  rows.push_back({"link_down", machine_group, "bytes a second from it", &o.link_down, at_least(0), OptionUnit::bytes});
  rows.push_back({"device_direct", machine_group,
                  "move between disk and device past the host's memory: true, false, or auto: where that is faster, on "
                  "the virtual device or an NVIDIA GPU that has cuFile. No number changes",
                  &o.device_direct, one_of({"auto", "true", "false"})});
  rows.push_back(
      {"update_on", machine_group,
       "where updates run with a device: cpu, device, or K: one in K parameters on the device; auto: so that "
       "both end together. No number changes",
       &o.update_on});
  rows.push_back(
      {"update_rate_cpu", machine_group,
       "parameters a second that the processor updates beside the virtual device; 0: as `machine` says, or as "
       "fast as it does",
       &o.update_rate_cpu, at_least(0)});
  rows.push_back(
      {"update_rate_device", machine_group, "the same of the virtual device", &o.update_rate_device, at_least(0)});
  rows.push_back(
      {"machine", machine_group, "file of rates to plan with; default: this machine's, measured", &o.machine});
  rows.push_back({"recompute", machine_group,
                  "activations made again in backward: auto, none, cheap, attention or block; block:8 for 8 layers",
                  &o.recompute});
  rows.push_back({"order", machine_group, "micro-batches by layer or one after the other: auto, layer or micro-batch",
                  &o.order, one_of({"auto", "layer", "micro-batch"})});
  rows.push_back({"deferred_layers", machine_group,
                  "layers whose update waits for their next forward, where steps do not clip; -1: by what is faster",
                  &o.deferred_layers, at_least(-1)});
  rows.push_back({"disk_margin",
                  machine_group,
                  "share of the disk's rate that may be missing at times: what is fastest in the mean of with and "
                  "without it is chosen. 0: it never is",
                  &o.disk_margin,
                  {.least = 0, .most = 0.9}});
  rows.push_back({"max_disk_writes_per_day", machine_group,
                  "write less to disk where that can be, recomputing instead, as 300GiB, commits included, exports "
                  "not; auto: as fast as can be",
                  &o.max_disk_writes_per_day, at_least(0), OptionUnit::bytes});
  const auto hidden = Option::experimental_group;
  rows.push_back({"page_size", hidden, "bytes of a page; 0: by budget and model", &o.page_size_bytes, at_least(0),
                  OptionUnit::bytes});
  rows.push_back({"io_request_size", hidden, "most bytes of one disk request; 0: by the store",
                  &o.io_request_size_bytes, at_least(0), OptionUnit::bytes});
  rows.push_back(
      {"piece_elements", hidden, "elements updated at once; 0: the default", &o.piece_elements, at_least(0)});
  rows.push_back({"tile_elements", hidden, "elements of a vocabulary tile; 0: the default. Changes bits",
                  &o.tile_elements, at_least(0)});
  rows.push_back({"policy", hidden,
                  "what gives way in memory: auto, farthest, everything-on-disk, lru, lifetime or belady", &o.policy,
                  one_of({"auto", "farthest", "everything-on-disk", "lru", "lifetime", "belady"})});
  rows.push_back({"disk_bytes_per_second", hidden, "a slow disk, which plans do not know; 0: as fast as it is",
                  &o.disk_bytes_per_second, at_least(0), OptionUnit::bytes});
  rows.push_back({"allow_uring", hidden, "use io_uring where the kernel has it", &o.allow_uring});
  rows.push_back(
      {"device_replay", hidden, "a CUDA device replays graphs of steps that move nothing", &o.device_replay});
  rows.push_back({"late_head_gradient", hidden,
                  "make a tied head's weight gradient at the end of backward, where that takes less memory",
                  &o.late_head_gradient});
  rows.push_back({"flat_pages", hidden,
                  "lay what is in memory on pages next to each other: auto, where that is faster, always or never",
                  &o.flat_pages, one_of({"auto", "always", "never"})});
  rows.push_back({"overlap_steps", hidden, "begin a step while moves of the one before go on", &o.overlap_steps});
  rows.push_back({"huge_pages", hidden, "ask for huge pages", &o.huge_pages});
  rows.push_back({"poison", hidden, "fill memory with NaN before use", &o.poison});
  rows.push_back({"delay_seed", hidden, "random delays in the lanes; 0: none", &o.delay_seed, at_least(0)});
  rows.push_back(
      {"flush_delay_ms", hidden, "make each flush of a commit slower by this", &o.flush_delay_ms, at_least(0)});
  rows.push_back({"telemetry", hidden, "record events: flight record, live view, totals of a step", &o.telemetry});
  rows.push_back({"event_log", hidden, "write every event to this file before it counts; empty: no", &o.event_log});
  return rows;
}

std::vector<Option> options_of(InitOptions& o) {
  return {
      {"arch", run_group, "llama, qwen2, qwen3 or gpt2; default: the preset's", &o.arch,
       one_of({"llama", "qwen2", "qwen3", "gpt2"})},
      {"preset", run_group, "sizes of a published model", &o.preset},
      {"tokenizer", run_group, "tokenizer.json, a folder that holds one, or bytes", &o.tokenizer},
      {"seed", run_group, "of the random weights", &o.seed, at_least(0)},
      {"dtype", run_group, "of the stored weights: f32, bf16 or f16", &o.dtype, one_of({"f32", "bf16", "f16"})},

      {"vocab_size", shape_group, "rows of the embedding; 0: as the tokenizer needs", &o.vocab_size, size_limits()},
      {"hidden_size", shape_group, "width of the residual stream", &o.hidden_size, size_limits()},
      {"intermediate_size", shape_group, "width of the MLP", &o.intermediate_size, size_limits()},
      {"num_hidden_layers", shape_group, "layers", &o.num_hidden_layers, size_limits()},
      {"num_attention_heads", shape_group, "query heads", &o.num_attention_heads, size_limits()},
      {"num_key_value_heads", shape_group, "key and value heads", &o.num_key_value_heads, size_limits()},
      {"head_dim", shape_group, "width of a head", &o.head_dim, size_limits()},
      {"max_position_embeddings", shape_group, "longest sequence", &o.max_position_embeddings, size_limits()},
      {"rms_norm_eps", shape_group, "epsilon of RMSNorm", &o.rms_norm_eps, at_least(0)},
      {"rope_theta", shape_group, "base of the rotary frequencies", &o.rope_theta, at_least(0)},
      {"initializer_range", shape_group, "standard deviation of the random weights", &o.initializer_range, at_least(0)},
      {"tie_word_embeddings", shape_group, "auto, true or false: head and embedding are one tensor",
       &o.tie_word_embeddings, one_of({"auto", "true", "false"})},
      {"n_embd", shape_group, "gpt2: width of the residual stream", &o.n_embd, size_limits()},
      {"n_layer", shape_group, "gpt2: layers", &o.n_layer, size_limits()},
      {"n_head", shape_group, "gpt2: heads", &o.n_head, size_limits()},
      {"n_inner", shape_group, "gpt2: width of the MLP", &o.n_inner, size_limits()},
      {"n_positions", shape_group, "gpt2: longest sequence", &o.n_positions, size_limits()},
      {"layer_norm_epsilon", shape_group, "gpt2: epsilon of LayerNorm", &o.layer_norm_epsilon, at_least(0)},
  };
}

std::vector<Option> options_of(EvalOptions& o) {
  std::vector<Option> rows = {
      {"model", paths_group, "model folder", &o.model},
      {"data", paths_group, ".txt, .jsonl or .npy files", &o.data},
      {"max_seq_len", length_group, "tokens in a sequence; 0: the model's limit, at most 1024", &o.max_seq_len,
       at_least(0)},
      {"per_device_eval_batch_size", length_group, "sequences at a time", &o.per_device_eval_batch_size,
       batch_limits()},
      {"max_windows", length_group, "sequences to evaluate; 0: all", &o.max_windows, at_least(0)},
  };
  add_machine_rows(rows, o);
  rows.push_back({"json", run_group, "print one JSON object", &o.json});
  return rows;
}

std::vector<Option> options_of(GenerateOptions& o) {
  std::vector<Option> rows = {
      {"model", paths_group, "model folder", &o.model},
      {"prompt", run_group, "text to continue", &o.prompt, {}, OptionUnit::none, /*may_be_empty=*/true},
      {"max_new_tokens", run_group, "most tokens to add", &o.max_new_tokens, at_least(1)},
      {"temperature", sampling_group, "0: always the most likely token", &o.temperature, at_least(0)},
      {"top_p",
       sampling_group,
       "sample from the smallest set of tokens of this probability; 1: off",
       &o.top_p,
       {.least = 0, .most = 1, .least_open = true}},
      {"top_k", sampling_group, "sample from this many most likely tokens; 0: off", &o.top_k, at_least(0)},
      {"seed", sampling_group, "of the sampling", &o.seed, at_least(0)},
  };
  add_machine_rows(rows, o);
  return rows;
}

std::vector<Option> options_of(TokenizeOptions& o) {
  return {
      {"model", paths_group, "folder or tokenizer.json, or bytes", &o.model},
      {"text", run_group, "text to turn into ids", &o.text, {}, OptionUnit::none, /*may_be_empty=*/true},
      {"file", run_group, "file to turn into ids", &o.file},
      {"ids", run_group, "ids to turn back into text, with --decode", &o.ids},
      {"decode", run_group, "ids to text; --text and --file then hold ids", &o.decode},
      {"add_special_tokens", run_group, "add what the tokenizer puts around a text, a begin token for one",
       &o.add_special_tokens},
      {"json", run_group, "print a JSON array", &o.json},
  };
}

std::vector<Option> options_of(InspectOptions& o) {
  return {
      {"model", paths_group, "model folder", &o.model},
      {"tensor", run_group, "tell of this tensor only, in full", &o.tensor},
      {"run", run_group, "output folder of a run: its model, and the story under its plan", &o.run},
      {"json", run_group, "print JSON", &o.json},
  };
}

void validate(const TrainOptions& o, TrainUse use) {
  require(!o.model.empty(), "--model", "a model folder");
  require(use == TrainUse::probe || !o.data.empty(), "--data", "one or more .txt, .jsonl or .npy files");
  require(use != TrainUse::train || !o.output_dir.empty(), "--output-dir", "a folder to write");
  require(!o.resume_from_checkpoint.empty(), "--resume-from-checkpoint", "auto, none or a checkpoint folder");
  validate_experiments(o);
  validate_device(o);
  if (o.max_grad_norm > 0 && static_cast<float>(o.max_grad_norm) == 0)
    throw UserError("max_grad_norm is {}, which is 0 in f32; give 0 to turn clipping off", o.max_grad_norm);
  if (o.eval_steps > 0 && o.eval_data.empty())
    throw UserError("eval_steps is {} but eval_data is missing; give --eval-data files or leave eval_steps out",
                    o.eval_steps);
  const std::int64_t decay = std::max<std::int64_t>(o.decay_steps, 0);
  if (o.lr_scheduler_type == "warmup_stable_decay" && o.max_steps > 0 && decay > o.max_steps - o.warmup_steps)
    throw UserError("warmup_steps {} and decay_steps {} are more than max_steps {}; lower them", o.warmup_steps, decay,
                    o.max_steps);
  if (o.decay_steps >= 0 && o.lr_scheduler_type != "warmup_stable_decay")
    throw UserError("decay_steps is {} but lr_scheduler_type is {}, which has none; use warmup_stable_decay",
                    o.decay_steps, o.lr_scheduler_type);
}

void validate(const InitOptions& o) {
  require(!o.output.empty(), "OUT", "the folder to write");
  require(!o.tokenizer.empty(), "--tokenizer", "a tokenizer.json, a folder that holds one, or bytes");
  require(!o.arch.empty() || !o.preset.empty(), "--arch", "llama, qwen2, qwen3 or gpt2 (or a --preset)");
}

void validate(const EvalOptions& o) {
  require(!o.model.empty(), "--model", "a model folder");
  require(!o.data.empty(), "--data", "one or more .txt, .jsonl or .npy files");
}

void validate(const GenerateOptions& o) { require(!o.model.empty(), "--model", "a model folder"); }

void validate(const TokenizeOptions& o) {
  require(!o.model.empty(), "--model", "a model folder, a tokenizer.json, or bytes");
  const int given = static_cast<int>(o.has_text) + static_cast<int>(!o.file.empty()) + static_cast<int>(!o.ids.empty());
  if (given == 0) throw UserError("nothing to tokenize; give --text, --file, or --ids with --decode");
  if (given > 1) throw UserError("--text, --file and --ids exclude each other; give one of them");
  if (!o.ids.empty() && !o.decode) throw UserError("--ids needs --decode; add it, or give --text");
}

void validate(const InspectOptions& o) {
  require(!o.model.empty(), "--model", "a model folder");
  if (o.json && !o.tensor.empty())
    throw UserError("--json lists the folder and --tensor tells a story; give one of them");
}

}  // namespace spillway
