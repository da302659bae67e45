// What a user can ask of each verb: plain data, and for each struct one table of its options. Whoever reads a file,
// parses flags, prints the effective values or the help visits the table; no option is listed twice.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace spillway {

inline constexpr std::int64_t most_micro_batches = 4096;  // of a step

// Training keys carry the names, and where there is one the default, of Hugging Face's TrainingArguments.
struct TrainOptions {
  std::string model;
  std::vector<std::string> data;
  std::string output_dir;

  std::int64_t max_steps = -1;  // -1: by num_train_epochs; 0: load and write, nothing else
  double num_train_epochs = 3.0;
  std::int64_t per_device_train_batch_size = 8;  // sequences in a micro-batch
  std::int64_t gradient_accumulation_steps = 1;  // micro-batches in a step
  std::int64_t max_seq_len = 0;                  // 0: the model's limit, at most default_seq_len

  double learning_rate = 5e-5;
  std::string lr_scheduler_type = "linear";
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = -1;  // of warmup_stable_decay; -1: a tenth of all steps
  double weight_decay = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;      // 0: no clipping
  std::string clip_mode = "auto";  // when steps that clip update: auto, after, deferred, speculative; changes no bit
  std::string moments = "f32";     // or 8bit, which changes numbers

  std::int64_t seed = 42;
  bool shuffle = true;
  std::vector<std::string> eval_data;
  std::int64_t eval_steps = 0;  // 0: once, after the last step
  std::int64_t logging_steps = 1;
  std::string trace;                      // file for a trace of the last steps
  std::int64_t trace_steps = 5;           // that it keeps
  std::string report_to = "tensorboard";  // or none
  std::string logging_dir;                // of the event files; empty: output_dir/runs
  std::string metrics_address;            // "127.0.0.1:9400"; empty: no endpoint

  std::int64_t save_steps = 0;        // commit every so many steps; 0: as often as costs little; -1: never
  std::int64_t save_total_limit = 1;  // commits kept
  std::int64_t export_steps = 0;      // 0: never
  bool save_only_model = false;       // exports hold the weights alone
  std::string resume_from_checkpoint = "auto";
  bool allow_numeric_change = false;

  std::string dtype = "auto";
  std::int64_t threads = 0;       // 0: one a processor
  std::int64_t memory_bytes = 0;  // key `memory`; 0: the free memory of the machine or container, minus a margin
  std::vector<std::string> spill_dir;
  std::string device = "cpu";            // or virtual: a memory of its own behind a link
  std::int64_t device_memory_bytes = 0;  // key `device_memory`; 0: as `machine` says
  std::int64_t link_up = 0;              // bytes a second to the device; 0: as `machine` says, or 8 GB/s
  std::int64_t link_down = 0;            // from it
  std::string device_direct = "false";   // auto, true, false: moves of the disk go past the host's memory
  std::string update_on = "auto";        // auto, cpu, device, or K: one in K parameters is updated on the device
  double update_rate_cpu = 0;            // parameters a second beside a device; 0: as `machine` says, or unbound
  double update_rate_device = 0;         // the same on the device
  std::string machine;                   // file of rates to plan with; empty: those of this machine
  std::string recompute = "auto";
  std::string order = "auto";
  std::int64_t deferred_layers = -1;  // whose update waits for their next forward, where steps do not clip; -1: chosen
  double disk_margin = 0.25;          // share of the disk's rate that may be missing at times
  std::int64_t max_disk_writes_per_day = 0;  // bytes; 0: any

  // Hidden from the help: for experiments and hostile-world tests. None but tile_elements changes a number of the
  // result.
  std::int64_t page_size_bytes = 0;        // 0: by budget and model
  std::int64_t io_request_size_bytes = 0;  // 0: chosen by the store
  std::int64_t piece_elements = 0;         // 0: Cut's default
  std::int64_t tile_elements = 0;          // 0: Cut's default; this one changes the Program and so the bits
  std::string policy = "auto";             // what gives way, and what is read ahead; see plan/policy.h
  std::int64_t disk_bytes_per_second = 0;  // the executor reads and writes no faster than this; 0: as fast as it can
  bool allow_uring = true;
  bool device_replay = true;        // an accelerator starts ops that are the same in every step as one
  std::string flat_pages = "auto";  // stays lie on pages next to each other: auto, where that is faster; always; never
  bool late_head_gradient = true;   // a tied head's weight gradient is made last where that takes less memory
  bool overlap_steps = true;        // a step may begin while moves of the one before go on
  bool huge_pages = true;
  bool poison = false;              // fill pages with NaN before use
  std::int64_t delay_seed = 0;      // 0: no random delays in the lanes
  std::int64_t flush_delay_ms = 0;  // each flush of a commit takes so much longer
  bool telemetry = true;            // record events
  std::string event_log;            // every event is first written to this file

  bool operator==(const TrainOptions&) const = default;
};

inline constexpr std::int64_t default_seq_len = 1024;

// Sizes of 0, and tie_word_embeddings "auto", mean: as the preset, or the family's usual value, has it.
struct InitOptions {
  std::string arch;  // llama, qwen2, qwen3, gpt2; empty: the preset's
  std::string preset;
  std::string tokenizer;  // a file or folder with tokenizer.json, or "bytes"
  std::string output;
  std::int64_t seed = 42;
  std::string dtype = "f32";  // of the stored weights: f32, bf16, f16

  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
  double rope_theta = 0;
  double initializer_range = 0;
  std::string tie_word_embeddings = "auto";
  // gpt2's own names
  std::int64_t n_embd = 0;
  std::int64_t n_layer = 0;
  std::int64_t n_head = 0;
  std::int64_t n_inner = 0;
  std::int64_t n_positions = 0;
  double layer_norm_epsilon = 0;

  bool operator==(const InitOptions&) const = default;
};

struct PlanOptions {
  TrainOptions train;
  bool json = false;
};

struct EvalOptions {
  std::string model;
  std::vector<std::string> data;
  std::int64_t max_seq_len = 0;  // 0: the model's limit, at most default_seq_len
  std::int64_t per_device_eval_batch_size = 8;
  std::int64_t max_windows = 0;  // 0: all of the data
  std::string dtype = "auto";
  std::int64_t threads = 0;
  std::int64_t memory_bytes = 0;
  std::vector<std::string> spill_dir;
  bool json = false;
};

struct GenerateOptions {
  std::string model;
  std::string prompt;
  std::int64_t max_new_tokens = 128;
  double temperature = 1.0;  // 0: the most likely token
  double top_p = 1.0;
  std::int64_t top_k = 50;  // 0: off
  std::int64_t seed = 42;
  std::string dtype = "auto";
  std::int64_t threads = 0;
  std::int64_t memory_bytes = 0;
  std::vector<std::string> spill_dir;
};

// Exactly one of text, file and ids is given.
struct TokenizeOptions {
  std::string model;
  std::string text;
  bool has_text = false;  // tells --text "" from none
  std::string file;
  std::vector<std::string> ids;     // with decode
  bool decode = false;              // text and file hold ids
  bool add_special_tokens = false;  // what the tokenizer puts around a text, a begin token for one
  bool json = false;
};

struct InspectOptions {
  std::string model;
  std::string tensor;
  std::string run;  // the output folder of a run whose plan tells the tensor's story
  bool json = false;
  TrainOptions plan_of;  // the options of that run; by default those of a run on the model with every key left out
};

// --- The tables ---

// Bounds on a number, and the words a string may be. Open bounds exclude the value.
struct OptionLimits {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool least_open = false;
  bool most_open = false;
  std::vector<std::string_view> choices = {};
};

// What an option is written as.
enum class OptionUnit : std::uint8_t { none, bytes };

// One row, bound to one struct's member. `value` points into the struct given to options_of.
struct Option {
  std::string_view key;  // snake_case; the flag has '-' for '_'
  std::string_view group;
  std::string_view help;
  std::variant<std::int64_t*, double*, bool*, std::string*, std::vector<std::string>*> value;
  OptionLimits limits = {};
  OptionUnit unit = OptionUnit::none;
  bool may_be_empty = false;  // as a flag; in a file an empty text stands for what is not given

  bool is_list() const { return std::holds_alternative<std::vector<std::string>*>(value); }
  bool is_bool() const { return std::holds_alternative<bool*>(value); }
  bool hidden() const { return group == experimental_group; }
  std::string flag() const;  // "--learning-rate"

  static constexpr std::string_view experimental_group = "experimental";
};

std::vector<Option> options_of(TrainOptions& options);
std::vector<Option> options_of(InitOptions& options);
std::vector<Option> options_of(EvalOptions& options);
std::vector<Option> options_of(GenerateOptions& options);
std::vector<Option> options_of(TokenizeOptions& options);
std::vector<Option> options_of(InspectOptions& options);

// Sets an option from what the user wrote; `where` names it in the error: "run.yaml: learning_rate" or
// "--learning-rate". A list takes all texts, anything else exactly one. Throws UserError.
void set_option(const Option& option, std::span<const std::string> texts, std::string_view where);

// The value as set_option reads it back, to the same bits; one text, or the items of a list.
std::vector<std::string> texts_of(const Option& option);

// The word nearest to `word` by edit distance, whatever the case and separators, or one that it is a part of; empty
// when none is near enough to be meant.
std::string nearest(std::string_view word, std::span<const std::string> words);

// Checks what no single row can: required keys and keys that contradict each other. Throws UserError.
enum class TrainUse : std::uint8_t { train, plan, probe };
void validate(const TrainOptions& options, TrainUse use);
void validate(const InitOptions& options);
void validate(const EvalOptions& options);
void validate(const GenerateOptions& options);
void validate(const TokenizeOptions& options);
void validate(const InspectOptions& options);

// --- Derived ---

// The rate of optimizer step `step` (from 0) out of `total_steps`, by the formulas of Hugging Face's get_scheduler;
// warmup_steps apply to every type, as in constant_with_warmup. Warmup begins at a rate of 0.
double learning_rate_at(const TrainOptions& options, std::int64_t step, std::int64_t total_steps);

}  // namespace spillway
