// In the place of libcufile.so.0, of memory of the host: what cuda/direct_io.h asks it for.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace {

struct Status {
  int error = 0;
  int of_driver = 0;
};
struct Description {
  int type = 0;
  union {
    int descriptor;
    void* other;
  } file = {};
  const void* calls_of_file_system = nullptr;
};
constexpr int not_initialized = 5001;
constexpr int io_not_supported = 5008;

bool is_set(const char* name) { return std::getenv(name) != nullptr; }
int descriptor_of(void* handle) { return *static_cast<int*>(handle); }

}  // namespace

extern "C" {

int fake_cufile_files = 0;  // that are known to it

Status cuFileDriverOpen() { return {is_set("FAKE_CUFILE_CLOSED") ? not_initialized : 0, 0}; }
Status cuFileDriverClose() { return {}; }

Status cuFileHandleRegister(void** handle, Description* description) {
  if (description->type != 1 || is_set("FAKE_CUFILE_REFUSES")) return {io_not_supported, 0};
  *handle = new int(description->file.descriptor);
  ++fake_cufile_files;
  return {};
}
void cuFileHandleDeregister(void* handle) {
  delete static_cast<int*>(handle);
  --fake_cufile_files;
}

ssize_t cuFileRead(void* handle, void* to, size_t bytes, off_t offset, off_t offset_in_memory) {
  if (is_set("FAKE_CUFILE_FAILS")) return -5011;
  return pread(descriptor_of(handle), static_cast<char*>(to) + offset_in_memory, bytes, offset);
}
ssize_t cuFileWrite(void* handle, const void* from, size_t bytes, off_t offset, off_t offset_in_memory) {
  return pwrite(descriptor_of(handle), static_cast<const char*>(from) + offset_in_memory, bytes, offset);
}

}  // extern "C"
