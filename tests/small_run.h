// A run of the smallest llama: what matters is what happens around its steps.
#pragma once

#include "golden/model_folder.h"
#include "one_choice.h"
#include "scratch_folder.h"
#include "session/options.h"

namespace spillway {

// The model and its data are written into the folder. All in memory, on one thread.
inline TrainOptions small_run(const ScratchFolder& folder) {
  golden::write_model(folder / "model", golden::llama_of(1, 32, 300), "");
  golden::write_tokens(folder / "tokens.npy", 2000, 300);
  TrainOptions options;
  options.model = (folder / "model").string();
  options.data = {(folder / "tokens.npy").string()};
  options.max_seq_len = 16;
  options.dtype = "f32";
  leave_one_choice_under_sanitizer(options);
  options.threads = 1;
  options.memory_bytes = std::int64_t{1} << 30;
  return options;
}

}  // namespace spillway
