// How many token ids training text holds, told from a part of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/bytes.h"
#include "text/dataset.h"

namespace spillway {

struct TokenEstimate {
  std::int64_t ids = 0;
  bool exact = true;  // of files of ids, and of texts that were read to their ends
};

// The ids that TokenStore::build would make of these files: as many as .npy files hold, and of texts as their
// beginnings tell, some `sample_bytes` of all; of a .jsonl file whole lines, of a text at least a block. Takes as long
// for a terabyte as for the sample. Ids are not checked; otherwise UserError and DeviceError as build.
TokenEstimate estimate_ids(std::span<const std::filesystem::path> files, const Encoder& encoder,
                           std::int64_t sample_bytes = 2 * mib);

}  // namespace spillway
