#include "cuda/driver.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "base/error.h"
#include "cuda/status.h"

namespace spillway::cuda {
namespace {

constexpr unsigned int version_of_calls = 10020;  // CUDA 10.2, which brought them

void* driver_call(const char* name) {
  void* call = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &call, version_of_calls, cudaEnableDefault, &found);
  if (error == cudaSuccess && found == cudaDriverEntryPointSuccess && call != nullptr) return call;
  throw DeviceError("CUDA: the driver has no {}: install a newer driver, or give --device cpu", name);
}

CUmemAllocationProp properties_of(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

// NOLINTNEXTLINE(bugprone-macro-parentheses): a type
#define SPILLWAY_CALL(type, call) (reinterpret_cast<type>(call))

}  // namespace

Driver::Driver()
    : calls_{driver_call("cuMemGetAllocationGranularity"),
             driver_call("cuMemCreate"),
             driver_call("cuMemRelease"),
             driver_call("cuMemAddressReserve"),
             driver_call("cuMemAddressFree"),
             driver_call("cuMemMap"),
             driver_call("cuMemUnmap"),
             driver_call("cuMemSetAccess")} {}

std::int64_t Driver::granularity_bytes(int device) const {
  const CUmemAllocationProp properties = properties_of(device);
  std::size_t bytes = 0;
  check(SPILLWAY_CALL(PFN_cuMemGetAllocationGranularity_v10020, calls_.granularity)(&bytes, &properties,
                                                                                    CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "asking for the size of pages");
  return static_cast<std::int64_t>(bytes);
}

std::uint64_t Driver::create(int device, std::int64_t bytes) const {
  const CUmemAllocationProp properties = properties_of(device);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult status =
      SPILLWAY_CALL(PFN_cuMemCreate_v10020, calls_.create)(&handle, static_cast<std::size_t>(bytes), &properties, 0);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return 0;
  check(status, "taking memory of the device");
  return handle;
}

void Driver::release(std::uint64_t handle) const noexcept {
  SPILLWAY_CALL(PFN_cuMemRelease_v10020, calls_.release)(handle);
}

std::uint64_t Driver::reserve(std::int64_t bytes, std::int64_t alignment) const {
  CUdeviceptr address = 0;
  check(SPILLWAY_CALL(PFN_cuMemAddressReserve_v10020, calls_.reserve)(&address, static_cast<std::size_t>(bytes),
                                                                      static_cast<std::size_t>(alignment), 0, 0),
        "reserving addresses on the device");
  return address;
}

void Driver::free_addresses(std::uint64_t address, std::int64_t bytes) const noexcept {
  SPILLWAY_CALL(PFN_cuMemAddressFree_v10020, calls_.free_addresses)(address, static_cast<std::size_t>(bytes));
}

void Driver::map(std::uint64_t address, std::int64_t bytes, std::uint64_t handle) const {
  check(SPILLWAY_CALL(PFN_cuMemMap_v10020, calls_.map)(address, static_cast<std::size_t>(bytes), 0, handle, 0),
        "mapping a page of the device");
}

void Driver::unmap(std::uint64_t address, std::int64_t bytes) const {
  check(SPILLWAY_CALL(PFN_cuMemUnmap_v10020, calls_.unmap)(address, static_cast<std::size_t>(bytes)),
        "unmapping a page of the device");
}

void Driver::allow_access(std::uint64_t address, std::int64_t bytes, int device) const {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(SPILLWAY_CALL(PFN_cuMemSetAccess_v10020, calls_.allow_access)(address, static_cast<std::size_t>(bytes), &access,
                                                                      1),
        "opening a page of the device");
}

#undef SPILLWAY_CALL

}  // namespace spillway::cuda
