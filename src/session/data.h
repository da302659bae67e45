// The text of a run as windows of token ids.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "text/dataset.h"
#include "text/token_estimate.h"
#include "text/tokenizer.h"

namespace spillway {

// Tokenises `files` into a nameless file in `scratch_dir`; the tokenizer is read only when a file holds text, and is
// gone afterwards. Adds to `notes` what was replaced or cut. A line of a .jsonl file may be as long as what is left of
// `budget_bytes` lets it be; 0: as long as any. Calls `between` now and then; what that throws ends it.
TokenStore read_tokens(const std::vector<std::string>& files, const std::filesystem::path& model_dir,
                       std::int64_t vocab_size, const std::filesystem::path& scratch_dir,
                       std::vector<std::string>& notes, std::int64_t budget_bytes = 0,
                       const std::function<void()>& between = {});

// How many ids that would give, in about a second.
TokenEstimate estimate_tokens(const std::vector<std::string>& files, const std::filesystem::path& model_dir,
                              std::int64_t vocab_size);

}  // namespace spillway
