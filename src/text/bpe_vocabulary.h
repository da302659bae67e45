// The model's own tokens, in flat tables: one string arena, offsets, ids, and a hash of indices. A vocabulary of 128k
// tokens takes about 4 MB.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

using TokenId = std::uint32_t;

// Ids are used as indices of tables, so a file may not name larger ones.
inline constexpr TokenId kLargestTokenId = (1u << 22) - 1;
inline constexpr TokenId kNoToken = ~TokenId{0};

class Vocabulary {
 public:
  // Call add() for each token, then seal() once; after that the object is constant and safe from several threads.
  void add(std::string_view token, TokenId id);
  // Throws UserError, beginning with `where`, if a token or an id was added twice.
  void seal(std::string_view where);
  bool sealed() const { return !slots_.empty(); }

  TokenId find(std::string_view token) const;  // kNoToken if there is none
  std::optional<std::string_view> text(TokenId id) const;
  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }
  std::int64_t id_limit() const { return static_cast<std::int64_t>(index_of_id_.size()); }  // largest id + 1

 private:
  std::string_view text_at(std::size_t index) const;
  std::size_t first_slot(std::string_view token) const;

  std::string arena_;
  std::vector<std::uint32_t> ends_;  // where token i ends in the arena
  std::vector<TokenId> ids_;
  std::vector<std::uint32_t> index_of_id_;
  std::vector<std::uint32_t> slots_;  // open addressing; kNoToken is an empty slot
};

}  // namespace spillway
