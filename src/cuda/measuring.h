// What measuring a device takes: memory for a while, and the device's clock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/launch.h"

struct CUevent_st;

namespace spillway::cuda {

// Memory that is given back at the end: of the device, or pinned on the host.
class Taken {
 public:
  enum class Where : std::uint8_t { device, host };
  Taken(std::int64_t bytes, Where where);
  ~Taken();
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  Where where_;
};

// A point in a stream.
class Moment {
 public:
  Moment();
  ~Moment();
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;

  void note(Stream stream) const;
  double seconds_until(const Moment& later) const;  // waits for it

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace spillway::cuda
