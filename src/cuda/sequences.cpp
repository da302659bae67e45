#include "cuda/sequences.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "cuda/status.h"

namespace spillway::cuda {
namespace {

constexpr std::int64_t alignment_bytes = 16;

}  // namespace

bool Sequences::start(std::int64_t number, Stream stream) {
  const auto found = all_.find(number);
  if (found == all_.end() || found->second.graph == nullptr) return false;
  check(cudaGraphLaunch(found->second.graph, stream), "starting a sequence of ops");
  return true;
}

void Sequences::begin(std::int64_t number, Stream stream) {
  current_ = &all_[number];
  records_ = current_->was_started && !current_->cannot_be_recorded;
  if (!records_) return;
  if (current_->brought_bytes > 0) {
    void* taken = nullptr;
    check(cudaMallocHost(&taken, static_cast<std::size_t>(current_->brought_bytes)), "taking memory for a sequence");
    current_->bytes = static_cast<std::byte*>(taken);
  }
  // Other threads start copies meanwhile, which are no part of it.
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a sequence of ops");
}

bool Sequences::end(Stream stream) {
  Sequence& sequence = *current_;
  current_ = nullptr;
  sequence.was_started = true;
  if (!records_) return true;
  records_ = false;
  cudaGraph_t recorded = nullptr;
  cudaError_t error = cudaStreamEndCapture(stream, &recorded);
  if (error == cudaSuccess) error = cudaGraphInstantiate(&sequence.graph, recorded, 0);
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  if (error != cudaSuccess) {
    cudaGetLastError();  // not to be taken for one of a launch
    sequence.graph = nullptr;
    sequence.cannot_be_recorded = true;
    return false;
  }
  check(cudaGraphLaunch(sequence.graph, stream), "starting a sequence of ops");
  return true;
}

const void* Sequences::kept(const void* from, std::int64_t bytes) {
  if (current_ == nullptr) return from;
  const std::int64_t taken = round_up(bytes, alignment_bytes);
  if (!records_) {
    if (!current_->was_started) current_->brought_bytes += taken;
    return from;
  }
  SPILLWAY_CHECK(current_->kept_bytes + taken <= current_->brought_bytes,
                 "a sequence brings more than it did at first");
  std::byte* const to = current_->bytes + current_->kept_bytes;
  current_->kept_bytes += taken;
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
  return to;
}

void Sequences::stop_recording(Stream stream) {
  if (!records_) return;
  cudaGraph_t recorded = nullptr;
  if (cudaStreamEndCapture(stream, &recorded) == cudaSuccess) cudaGraphDestroy(recorded);
  cudaGetLastError();
  records_ = false;
}

// After a failure of the device these fail as well, and there is nothing to be done about it.
void Sequences::forget() {
  for (const auto& [number, sequence] : all_) {
    if (sequence.graph != nullptr) cudaGraphExecDestroy(sequence.graph);
    cudaFreeHost(sequence.bytes);
  }
  all_.clear();
  current_ = nullptr;
}

}  // namespace spillway::cuda
