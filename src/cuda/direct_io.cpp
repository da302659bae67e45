#include "cuda/direct_io.h"

#include <dlfcn.h>
#include <sys/types.h>

#include <cerrno>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace spillway::cuda {
namespace {

// As cufile.h has them.
struct FileStatus {
  int error = 0;  // 0: success
  int of_driver = 0;
};
struct FileDescription {
  int type = 1;  // an open descriptor
  union {
    int descriptor;
    void* other;
  } file = {};
  const void* calls_of_file_system = nullptr;
};

}  // namespace

struct DirectIo::Calls {
  FileStatus (*open)() = nullptr;
  FileStatus (*close)() = nullptr;
  FileStatus (*add_file)(void** handle, FileDescription* description) = nullptr;
  void (*remove_file)(void* handle) = nullptr;
  ssize_t (*read)(void* handle, void* to, std::size_t bytes, off_t offset, off_t offset_in_memory) = nullptr;
  ssize_t (*write)(void* handle, const void* from, std::size_t bytes, off_t offset, off_t offset_in_memory) = nullptr;
};

// The library itself stays, as cuBLASLt does.
DirectIo::DirectIo(const std::string& library) {
  void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    why_not_ = fmt::format("{} was not found", library);
    return;
  }
  auto calls = std::make_unique<Calls>();
  const auto find = [&](const char* name, auto& call) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(opened, name));
    if (call == nullptr) why_not_ = fmt::format("{} has no {}", library, name);
  };
  find("cuFileDriverOpen", calls->open);
  find("cuFileDriverClose", calls->close);
  find("cuFileHandleRegister", calls->add_file);
  find("cuFileHandleDeregister", calls->remove_file);
  find("cuFileRead", calls->read);
  find("cuFileWrite", calls->write);
  if (!why_not_.empty()) return;
  const FileStatus status = calls->open();
  if (status.error != 0) {
    why_not_ = fmt::format("the driver of cuFile does not open (status {})", status.error);
    return;
  }
  calls_ = std::move(calls);
}

DirectIo::~DirectIo() {
  forget_files();
  if (calls_) calls_->close();
}

void DirectIo::forget_files() {
  const std::lock_guard lock(mutex_);
  for (const auto& [descriptor, handle] : handles_) calls_->remove_file(handle);
  handles_.clear();
}

int DirectIo::add_file(int descriptor, void*& handle) {
  FileDescription description;
  description.file.descriptor = descriptor;
  return calls_->add_file(&handle, &description).error;
}

std::string DirectIo::why_not(int descriptor) {
  void* handle = nullptr;
  const int status = add_file(descriptor, handle);
  if (status != 0) return fmt::format("cuFile refuses files there (status {})", status);
  calls_->remove_file(handle);
  return "";
}

void* DirectIo::handle_of(int descriptor) {
  SPILLWAY_CHECK(calls_ != nullptr, "cuFile is used though {}", why_not_);
  const std::lock_guard lock(mutex_);
  void*& handle = handles_[descriptor];
  if (handle != nullptr) return handle;
  const int status = add_file(descriptor, handle);
  if (status == 0) return handle;
  handles_.erase(descriptor);
  throw DeviceError(
      "CUDA: cuFile refuses the slot files (status {}): give --device-direct false, or a --spill-dir on another file "
      "system",
      status);
}

namespace {

// Failures of its own it says by other negative numbers; what they mean is in its log.
std::int64_t moved(ssize_t result) {
  if (result >= 0) return result;
  return result == -1 && errno != 0 ? -errno : -EIO;
}

}  // namespace

std::int64_t DirectIo::read(int descriptor, std::int64_t offset_bytes, void* to, std::int64_t bytes) {
  return moved(calls_->read(handle_of(descriptor), to, static_cast<std::size_t>(bytes), offset_bytes, 0));
}

std::int64_t DirectIo::write(int descriptor, std::int64_t offset_bytes, const void* from, std::int64_t bytes) {
  return moved(calls_->write(handle_of(descriptor), from, static_cast<std::size_t>(bytes), offset_bytes, 0));
}

}  // namespace spillway::cuda
