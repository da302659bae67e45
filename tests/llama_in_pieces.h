// A run of a llama small enough for any test, cut so that a step of it has many pieces and tiles to move.
#pragma once

#include <string_view>

#include "golden/model_folder.h"
#include "scratch_folder.h"
#include "session/options.h"

namespace spillway {

// The model and its data are written into the folder. One step, which commits nothing; `machine`: the JSON of its
// rates.
inline TrainOptions llama_in_pieces(const ScratchFolder& folder, std::string_view machine) {
  golden::write_model(folder / "model", golden::llama_of(4, 192, 2000), "");
  golden::write_tokens(folder / "tokens.npy", 2000, 2000);
  TrainOptions options;
  options.model = (folder / "model").string();
  options.data = {(folder / "tokens.npy").string()};
  options.output_dir = (folder / "out").string();
  options.machine = folder.file("machine.json", machine).string();
  options.max_seq_len = 40;
  options.per_device_train_batch_size = 2;
  options.dtype = "f32";
  options.threads = 2;
  options.piece_elements = 65536;
  options.tile_elements = 131072;
  options.save_steps = -1;
  options.max_steps = 1;
  return options;
}

}  // namespace spillway
