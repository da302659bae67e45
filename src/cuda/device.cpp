#include "cuda/device.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "base/steady_clock.h"
#include "cuda/cuda.h"
#include "cuda/kernels.h"
#include "cuda/status.h"

namespace spillway::cuda {
namespace {

constexpr int least_major = 8;  // sm_80: bf16 products, and the shared memory of attention_tiles.h

void check_driver_is_there() {
  int version = 0;
  const cudaError_t error = cudaDriverGetVersion(&version);
  const int needed = CUDART_VERSION / 1000;
  if (error != cudaSuccess || version == 0) {
    throw DeviceError("device is cuda, and no NVIDIA driver was found: install one for CUDA {}, or give --device cpu",
                      needed);
  }
  if (version / 1000 < needed) {
    throw DeviceError(
        "device is cuda, and the NVIDIA driver is for CUDA {}.{}: install one for CUDA {} or newer, or give --device "
        "cpu",
        version / 1000, version % 1000 / 10, needed);
  }
}

DeviceFacts facts_of_first_device() {
  check_driver_is_there();
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    throw DeviceError(
        "device is cuda, and the driver shows no CUDA device (CUDA_VISIBLE_DEVICES may hide it): give --device cpu");
  }
  check(error, "looking for a device");
  DeviceFacts facts;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, facts.index), "asking what the device is");
  facts.name = static_cast<const char*>(properties.name);
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.multiprocessors = properties.multiProcessorCount;
  facts.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  if (facts.major < least_major) {
    throw DeviceError("device is cuda, and {} has compute capability {}.{}; 8.0 or newer is needed: give --device cpu",
                      facts.name, facts.major, facts.minor);
  }
  check(cudaSetDevice(facts.index), "opening the device");
  check(cudaFree(nullptr), "opening the device");
  return facts;
}

}  // namespace

Device::Device() : facts_(facts_of_first_device()) {
  for (Stream& stream : streams_) {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  }
  events_.resize(static_cast<std::size_t>(most_marks));
  for (CUevent_st*& event : events_) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "making an event");
  }
}

// After a failure of the device all of these fail as well, and there is nothing to be done about it.
Device::~Device() {
  give_back();
  for (CUevent_st* event : events_) cudaEventDestroy(event);
  for (Stream stream : streams_) cudaStreamDestroy(stream);
}

void Device::make_current() const { check(cudaSetDevice(facts_.index), "going to the device"); }

std::string Device::describe() const {
  const std::string copies =
      host_ && !host_->are_registered() ? fmt::format("; copies are not direct ({})", host_->why_not()) : std::string();
  const std::string pages =
      pool_ ? fmt::format(" in {} pages of {}", pool_->page_count(), format_bytes(pool_->page_bytes())) : std::string();
  return fmt::format("CUDA device {}, {}{}, at {}/s up and {}/s down{}", facts_.name,
                     format_bytes(pool_ ? pool_->page_count() * pool_->page_bytes() : facts_.memory_bytes), pages,
                     format_bytes(static_cast<std::int64_t>(link_.up_bytes_per_second)),
                     format_bytes(static_cast<std::int64_t>(link_.down_bytes_per_second)), copies);
}

std::string Device::numeric_key() const {
  return fmt::format("CUDA {} on {} (sm_{}{}, {} multiprocessors); {}", CUDART_VERSION, facts_.name, facts_.major,
                     facts_.minor, facts_.multiprocessors, products_.version());
}

std::int64_t Device::free_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  make_current();
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  return static_cast<std::int64_t>(free);
}

std::unique_ptr<Kernel> Device::make_kernel(const KernelKey& key) { return make_cuda_kernel(key, *this); }

void Device::need_scratch(std::int64_t bytes) {
  SPILLWAY_CHECK(scratch_ == nullptr, "a kernel that needs {} bytes is made after memory was reserved", bytes);
  scratch_bytes_ = std::max(scratch_bytes_, bytes);
}

std::byte* Device::scratch() const {
  SPILLWAY_CHECK(scratch_ != nullptr, "an op of {} before memory was reserved", facts_.name);
  return scratch_;
}

void Device::clear(void* at, std::int64_t bytes) const {
  check(cudaMemsetAsync(at, 0, static_cast<std::size_t>(bytes), compute()), "clearing memory of the device");
}

void Device::copy_within(void* to, const void* from, std::int64_t bytes) const {
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, compute()),
        "copying within the device");
}

void Device::bring(void* to, const void* from, std::int64_t bytes) {
  check(cudaMemcpyAsync(to, sequences_.kept(from, bytes), static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                        compute()),
        "copying to the device");
}

void Device::reserve(const AcceleratorMemory& memory, HostPagePool& host) {
  SPILLWAY_CHECK(!pool_, "memory of {} is reserved already", facts_.name);
  make_current();
  void* taken = nullptr;
  const std::int64_t value_bytes = std::max<std::int64_t>(memory.value_bytes, 256);
  check(cudaMalloc(&taken, static_cast<std::size_t>(value_bytes)), "taking memory for inputs");
  values_ = static_cast<std::byte*>(taken);
  check(cudaMemset(values_, 0, static_cast<std::size_t>(value_bytes)), "clearing memory for inputs");
  check(cudaMalloc(&taken, static_cast<std::size_t>(scratch_bytes_)), "taking scratch memory");
  scratch_ = static_cast<std::byte*>(taken);
  pool_.emplace(driver_, facts_.index, memory.page_bytes, memory.page_count, memory.address_bytes);
  host_.emplace(host, scratch_, stream(DeviceStream::up));
}

void Device::give_back() {
  if (direct_io_) direct_io_->forget_files();
  sequences_.stop_recording(compute());
  for (Stream stream : streams_) cudaStreamSynchronize(stream);
  sequences_.forget();
  host_.reset();
  pool_.reset();
  cudaFree(values_);
  cudaFree(scratch_);
  values_ = nullptr;
  scratch_ = nullptr;
}

// Copies and moves of the disk are done when their call returns, so only ops may still use what a page had.
void Device::attach(std::int64_t address_offset, std::span<const PageId> pages, DeviceStream by) {
  make_current();
  pool_->attach(address_offset, pages, [&] {
    if (by == DeviceStream::compute) check(cudaStreamSynchronize(compute()), "waiting for an op");
  });
}

void Device::fill(std::byte* at, std::byte value, std::int64_t bytes, DeviceStream by) {
  make_current();
  check(cudaMemsetAsync(at, std::to_integer<int>(value), static_cast<std::size_t>(bytes), stream(by)),
        "filling a page of the device");
  if (by == DeviceStream::disk) check(cudaStreamSynchronize(stream(by)), "filling a page of the device");
}

void Device::copy_up(std::byte* to, const HostBundle& from) {
  make_current();
  host_->copy_up(to, from, stream(DeviceStream::up));
  check(cudaStreamSynchronize(stream(DeviceStream::up)), "copying to the device");
}

void Device::copy_down(const HostBundle& to, const std::byte* from) {
  make_current();
  host_->copy_down(to, from, stream(DeviceStream::down));
  check(cudaStreamSynchronize(stream(DeviceStream::down)), "copying from the device");
}

std::string Device::why_not_direct(int descriptor) {
  make_current();
  if (!direct_io_) direct_io_.emplace();
  return direct_io_->why_not().empty() ? direct_io_->why_not(descriptor) : direct_io_->why_not();
}

std::int64_t Device::read_file(int descriptor, std::int64_t offset_bytes, std::byte* to, std::int64_t bytes) {
  make_current();
  return direct_io_->read(descriptor, offset_bytes, to, bytes);
}

std::int64_t Device::write_file(int descriptor, std::int64_t offset_bytes, const std::byte* from, std::int64_t bytes) {
  make_current();
  return direct_io_->write(descriptor, offset_bytes, from, bytes);
}

void Device::put(std::byte* to, const std::byte* from, std::int64_t bytes) {
  make_current();
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, compute()),
        "copying to the device");
  check(cudaStreamSynchronize(compute()), "copying to the device");
}

void Device::get(std::byte* to, const std::byte* from, std::int64_t bytes) {
  make_current();
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, compute()),
        "copying from the device");
  check(cudaStreamSynchronize(compute()), "copying from the device");
}

bool Device::start_sequence(std::int64_t number) { return sequences_.start(number, compute()); }
void Device::begin_sequence(std::int64_t number) { sequences_.begin(number, compute()); }
bool Device::end_sequence() { return sequences_.end(compute()); }

std::int64_t Device::mark() {
  check(cudaEventRecord(events_[static_cast<std::size_t>(marks_ % most_marks)], compute()), "marking an op");
  return marks_++;
}

bool Device::is_done(std::int64_t mark) {
  const cudaError_t error = cudaEventQuery(events_[static_cast<std::size_t>(mark % most_marks)]);
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // not a failure, and not to be taken for one of a launch
    return false;
  }
  check(error, "running an op");
  return true;
}

void Device::wait(std::int64_t mark) {
  check(cudaEventSynchronize(events_[static_cast<std::size_t>(mark % most_marks)]), "running an op");
}

}  // namespace spillway::cuda

namespace spillway {

bool built_with_cuda() { return true; }

std::shared_ptr<Accelerator> open_cuda_device() { return std::make_shared<cuda::Device>(); }

}  // namespace spillway
