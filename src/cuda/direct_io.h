// Reads and writes between files and a CUDA device's memory by cuFile ("cuFile API Reference Guide", GPUDirect
// Storage). The library is loaded when it is asked for, and may be missing. Its few types are declared here, so it is
// not needed to build either.
//
// Memory is not registered with it (cuFileBufRegister): pages are mapped anew as stays begin. cuFile then goes through
// buffers of its own on the device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace spillway::cuda {

class DirectIo {
 public:
  // Opens library and driver; see why_not.
  explicit DirectIo(const std::string& library = "libcufile.so.0");
  ~DirectIo();
  DirectIo(const DirectIo&) = delete;
  DirectIo& operator=(const DirectIo&) = delete;

  // Empty when it can be used. Otherwise what is missing, in words that go on from "there is no direct path: ".
  const std::string& why_not() const { return why_not_; }
  // The same of an open file, which is tried.
  std::string why_not(int descriptor);

  // As Accelerator::read_file, with the device current on the calling thread. A file is made known to cuFile when it is
  // first used; throws DeviceError where that is refused, though files like it were taken.
  std::int64_t read(int descriptor, std::int64_t offset_bytes, void* to, std::int64_t bytes);
  std::int64_t write(int descriptor, std::int64_t offset_bytes, const void* from, std::int64_t bytes);
  // Before the files are closed.
  void forget_files();

 private:
  struct Calls;

  void* handle_of(int descriptor);
  int add_file(int descriptor, void*& handle);  // returns cuFile's status, 0 where it takes the file

  std::string why_not_;
  std::unique_ptr<Calls> calls_;
  std::mutex mutex_;
  std::map<int, void*> handles_;  // by descriptor
};

}  // namespace spillway::cuda
