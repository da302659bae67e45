// What is said of CUDA's errors, and what to do about them; needs no device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "cuda/status.h"

namespace spillway::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// By the numbers of cudaError_t, which are those of the driver too.
std::string said_of(int status) {
  try {
    check(status, "copying to the device");
  } catch (const DeviceError& error) {
    return error.what();
  }
  return {};
}

TEST(CudaStatus, SuccessIsNoError) { EXPECT_EQ(said_of(0), ""); }

TEST(CudaStatus, AnErrorIsNamedWithWhatWasTriedAndWhatToDo) {
  EXPECT_THAT(said_of(214), AllOf(HasSubstr("copying to the device failed"), HasSubstr("cudaErrorECCUncorrectable"),
                                  HasSubstr("memory is faulty"), HasSubstr("committed is safe")));
  for (const auto& [status, name] : {std::pair(719, "cudaErrorLaunchFailure"), {700, "cudaErrorIllegalAddress"}}) {
    EXPECT_THAT(said_of(status), AllOf(HasSubstr(name), HasSubstr("please report it"), HasSubstr("committed is safe")));
  }
  EXPECT_THAT(said_of(2), AllOf(HasSubstr("cudaErrorMemoryAllocation"), HasSubstr("--device-memory")));
  EXPECT_THAT(said_of(209), HasSubstr("build with its architecture"));
  EXPECT_THAT(said_of(46), HasSubstr("another process has the device"));
  EXPECT_THAT(said_of(999), AllOf(HasSubstr("cudaErrorUnknown"), HasSubstr("dmesg")));
}

}  // namespace
}  // namespace spillway::cuda
