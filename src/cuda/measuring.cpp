#include "cuda/measuring.h"

#include <cuda_runtime_api.h>

#include "cuda/status.h"

namespace spillway::cuda {

Taken::Taken(std::int64_t bytes, Where where) : where_(where) {
  void* taken = nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  check(where == Where::host ? cudaMallocHost(&taken, size) : cudaMalloc(&taken, size),
        "taking memory to measure with");
  data_ = static_cast<std::byte*>(taken);
}

Taken::~Taken() { where_ == Where::host ? cudaFreeHost(data_) : cudaFree(data_); }

Moment::Moment() { check(cudaEventCreate(&event_), "making an event to measure with"); }
Moment::~Moment() { cudaEventDestroy(event_); }

void Moment::note(Stream stream) const { check(cudaEventRecord(event_, stream), "a moment to measure"); }

double Moment::seconds_until(const Moment& later) const {
  float milliseconds = 0;
  check(cudaEventSynchronize(later.event_), "a moment to measure");
  check(cudaEventElapsedTime(&milliseconds, event_, later.event_), "a moment to measure");
  return static_cast<double>(milliseconds) / 1000;
}

}  // namespace spillway::cuda
