// Which tokens begin and end a text, as the files beside tokenizer.json say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "text/bpe_vocabulary.h"

namespace spillway {

struct EndTokens {
  std::optional<TokenId> begin, end;
  std::vector<TokenId> stops;  // all that generation_config.json has generation end with
};

// kNoToken if there is no such token.
using FindToken = std::function<TokenId(std::string_view)>;

// Looks in tokenizer_config.json, then generation_config.json, then config.json (of several ids, the first), then for a
// well-known name. A file that is not there, or does not say, is passed over; one that is malformed, or names an end at
// or above `id_limit`, throws UserError. A begin token there is as none.
EndTokens read_end_tokens(const std::filesystem::path& folder, const FindToken& find, std::int64_t id_limit);
EndTokens well_known_end_tokens(const FindToken& find);

}  // namespace spillway
