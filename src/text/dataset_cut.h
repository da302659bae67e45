// Where to cut a long document so that its parts have the token ids of the whole.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/dataset.h"

namespace spillway {

struct Cut {
  std::size_t left_bytes = 0;   // the left part is text[0, left_bytes)
  std::size_t right_begin = 0;  // the right part begins here: left_bytes, or one more when a space is dropped
  bool forced = false;          // no good place was found; ids may differ near the cut
};

// The last good place in `text`, which goes on beyond its end. A tokenizer that puts a space before every text it is
// given (as SentencePiece does) gets its parts cut at a space, which is dropped, since it comes back. `text` is valid
// UTF-8 and longer than a few hundred bytes.
Cut find_cut(std::string_view text, const Encoder& encoder);

}  // namespace spillway
