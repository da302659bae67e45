// The bookkeeping that the I/O engines share: requests cut in parts, short and interrupted transfers continued, failed
// reads tried once more, the end of a request told once. It does no I/O, and is not safe for several threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "store/io.h"

namespace spillway {

// A transfer that gains nothing is begun again so often; file systems that never get further exist.
inline constexpr int most_interruptions = 100000;

// The files of an engine; descriptors are borrowed.
class IoFiles {
 public:
  struct File {
    int descriptor = -1;
    bool direct = false;  // opened with O_DIRECT
  };

  int add(int descriptor);
  const File& at(int number) const;
  // Returns errno or 0.
  int flush(int number) const;

 private:
  std::vector<File> files_;
};

class IoParts {
 public:
  // One transfer to ask the kernel for.
  struct Transfer {
    IoRequest::Kind kind = IoRequest::Kind::read;
    int file = 0;
    std::int64_t offset_bytes = 0;
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };

  IoParts(int depth, std::int64_t request_bytes);

  // `direct`: offsets and sizes of transfers must stay multiples of 4096, also when one is continued.
  void add(const IoRequest& request, bool direct);

  // The number of a part to start now, below depth, or -1: nothing to start, or `depth` under way. Where reads and
  // writes wait, of that kind of which fewer are under way: a read need not wait for all writes before it.
  int start();
  Transfer transfer(int number) const;

  // What the kernel answered: bytes, or -errno. A part that is to go on will be given out by start again. Appends the
  // request's completion when this was its last part.
  void finish(int number, std::int64_t result, std::vector<IoCompletion>& done);

  // Parts given out by start and not finished.
  int under_way() const { return under_way_[0] + under_way_[1]; }

 private:
  struct Active {
    IoRequest request;
    bool direct = false;
    std::int64_t cut_bytes = 0;  // that parts were made of
    std::int64_t done_bytes = 0;
    int parts = 0;  // that have not ended
    int error = 0;
    bool at_end = false;  // of the file
  };
  struct Part {
    std::size_t active = 0;
    std::int64_t begin_bytes = 0;  // in the request
    std::int64_t bytes = 0;
    std::int64_t done_bytes = 0;
    std::int64_t from_bytes = 0;  // where the transfer under way begins, in the part
    bool has_failed = false;
    int interruptions = 0;  // since it last gained bytes
  };

  static std::size_t index_of(IoRequest::Kind kind) { return kind == IoRequest::Kind::read ? 0 : 1; }
  static bool advance(Part& part, Active& active, std::int64_t result);
  std::deque<std::size_t>& next_queue();
  void release(int number);
  void abandon_rest(std::size_t number);

  std::int64_t request_bytes_;
  std::vector<Active> actives_;
  std::vector<std::size_t> free_actives_;
  // By kind, requests not cut in full; only the first of each may have parts.
  std::array<std::deque<std::size_t>, 2> queues_;
  std::vector<Part> parts_;
  std::vector<int> free_parts_;
  std::vector<int> again_;          // parts to continue
  std::array<int, 2> under_way_{};  // by kind
  bool last_was_read_ = false;      // of the parts of requests that were started
};

}  // namespace spillway
