// Sequences of ops as CUDA graphs ("CUDA C++ Programming Guide", stream capture): recorded while they are started, and
// launched as one after that. The first time a sequence is started it is not recorded, since code is loaded and
// products are set up then, which a capture does not bear.
//
// A graph holds addresses, which are the same in every step; what is mapped there may change between its launches.
// Bytes that an op brings from the host are kept beside it, pinned, since a copy in a graph reads them at each launch.
#pragma once

#include <cstdint>
#include <map>

#include "cuda/launch.h"

struct CUgraphExec_st;

namespace spillway::cuda {

class Sequences {
 public:
  Sequences() = default;
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  bool start(std::int64_t number, Stream stream);  // false: it was not recorded
  void begin(std::int64_t number, Stream stream);
  bool end(Stream stream);  // false: it could not be recorded, and none of its ops was started
  // Where bytes that an op brings stay unchanged for as long as its sequence is recorded; `from` where none is
  // recorded.
  const void* kept(const void* from, std::int64_t bytes);
  void stop_recording(Stream stream);  // where an op failed between begin and end
  void forget();                       // all of them; none is under way

 private:
  struct Sequence {
    CUgraphExec_st* graph = nullptr;  // null: not recorded
    bool was_started = false;
    bool cannot_be_recorded = false;
    std::int64_t brought_bytes = 0;  // when it was started first
    std::byte* bytes = nullptr;      // pinned: what its ops bring
    std::int64_t kept_bytes = 0;
  };

  std::map<std::int64_t, Sequence> all_;
  Sequence* current_ = nullptr;  // between begin and end
  bool records_ = false;
};

}  // namespace spillway::cuda
