// Asynchronous reads and writes of files, driven by one thread that sleeps in the kernel when it has nothing to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace spillway {

struct IoRequest {
  enum class Kind : std::uint8_t { read, write };
  Kind kind = Kind::read;
  int file = 0;  // from IoEngine::add_file
  std::int64_t offset_bytes = 0;
  std::byte* data = nullptr;  // stays valid until completion; written by reads
  std::int64_t bytes = 0;     // at least 1
  std::uint64_t tag = 0;      // handed back
};

// The end of a request. A read that met the end of the file has fewer bytes and no error. After an error, `bytes` says
// how much was transferred, not where.
struct IoCompletion {
  std::uint64_t tag = 0;
  std::int64_t bytes = 0;
  int error = 0;                  // errno, or 0
  std::int64_t wanted_bytes = 0;  // of the request

  bool failed() const { return error != 0 || bytes < wanted_bytes; }
};

// Requests are cut in parts of at most request_bytes, of which at most `depth` are under way; short and interrupted
// transfers are continued. A part of a read that fails is tried once more before that is an error; a write's failure is
// one at once. Reads start in order of submission, and so do writes, but a read may start before a write that came
// first, and they finish in any order: what needs another's end waits for it before it is submitted.
//
// One thread at a time may call everything here, except wake, which any thread may.
class IoEngine {
 public:
  virtual ~IoEngine() = default;  // waits for the parts under way; what has not started is dropped

  // The descriptor stays the caller's, who keeps it open as long as requests on it are under way.
  virtual int add_file(int descriptor) = 0;
  // Queues the request and returns at once. It may not start before wait is called.
  virtual void submit(const IoRequest& request) = 0;
  // Sleeps until a request has ended or wake was called (since the last wait returned), and appends what has ended.
  virtual void wait(std::vector<IoCompletion>& done) = 0;
  virtual void wake() = 0;
  // Makes the completed writes of this file durable; blocks. Returns errno or 0.
  virtual int flush(int file) = 0;
  // Which engine, and why: "io_uring, 8 requests of 4.00 MiB".
  virtual std::string describe() const = 0;
};

struct IoOptions {
  int depth = 8;                                       // what is submitted later waits for these
  std::int64_t request_bytes = std::int64_t{4} << 20;  // a multiple of 4096
  bool allow_uring = true;
  std::int64_t throttle_bytes_per_second = 0;  // 0: as fast as it goes; otherwise a slow disk, for tests
};

// Of the calling thread, which waits for disks: that it may run as soon as what it waits for has ended, though others
// compute on all processors. Any user may ask for it: a short slice of the scheduler, from Linux 6.12 on. An older
// kernel lets it wait for up to a slice of theirs, and one that refuses does too.
void run_promptly();

// io_uring, or where the kernel refuses it a few threads of pread and pwrite with the same behaviour; describe() says
// why. Throws DeviceError when neither can be made.
std::unique_ptr<IoEngine> make_io_engine(const IoOptions& options);

}  // namespace spillway
