// The text of a run as windows of token ids.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "text/dataset.h"
#include "text/tokenizer.h"

namespace spillway {

// Tokenises `files` into a nameless file in `scratch_dir`; the tokenizer is read only when a file holds text, and is
// gone afterwards. Adds to `notes` what was replaced or cut.
TokenStore read_tokens(const std::vector<std::string>& files, const std::filesystem::path& model_dir,
                       std::int64_t vocab_size, const std::filesystem::path& scratch_dir,
                       std::vector<std::string>& notes);

}  // namespace spillway
