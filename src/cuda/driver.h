// The calls of the CUDA driver that the runtime library has none for: virtual memory management. They are asked of the
// driver when a device is opened, so a program that uses no device needs no driver.
//
// "CUDA Driver API", Virtual Memory Management. Addresses are integers here, and handles opaque, to keep the toolkit's
// headers out of ours.
#pragma once

#include <cstdint>

namespace spillway::cuda {

class Driver {
 public:
  // Throws DeviceError where the driver has no virtual memory management.
  Driver();

  // Physical memory comes and is mapped in multiples of this.
  std::int64_t granularity_bytes(int device) const;
  std::uint64_t create(int device, std::int64_t bytes) const;  // physical memory; 0 when there is too little
  void release(std::uint64_t handle) const noexcept;
  std::uint64_t reserve(std::int64_t bytes, std::int64_t alignment) const;  // of addresses
  void free_addresses(std::uint64_t address, std::int64_t bytes) const noexcept;
  void map(std::uint64_t address, std::int64_t bytes, std::uint64_t handle) const;
  void unmap(std::uint64_t address, std::int64_t bytes) const;
  void allow_access(std::uint64_t address, std::int64_t bytes, int device) const;  // reading and writing

 private:
  struct Calls {
    void* granularity = nullptr;
    void* create = nullptr;
    void* release = nullptr;
    void* reserve = nullptr;
    void* free_addresses = nullptr;
    void* map = nullptr;
    void* unmap = nullptr;
    void* allow_access = nullptr;
  };
  Calls calls_;
};

}  // namespace spillway::cuda
