// Files and memory through a library in the place of cuFile, without a device; and through cuFile where there is one.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "cuda/cuda_ops.h"
#include "cuda/direct_io.h"
#include "scoped_variable.h"
#include "scratch_folder.h"

namespace spillway {
namespace {

using cuda::DirectIo;
using testing::HasSubstr;

class FileOfBytes {
 public:
  explicit FileOfBytes(const std::filesystem::path& path)
      : descriptor_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~FileOfBytes() { close(descriptor_); }
  FileOfBytes(const FileOfBytes&) = delete;
  FileOfBytes& operator=(const FileOfBytes&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 37 + i / 251) & 0xff);
  return bytes;
}

class CudaDirectIo : public testing::Test {
 protected:
  ScratchFolder scratch_;
};

TEST_F(CudaDirectIo, WithoutTheLibraryItSaysSo) {
  const DirectIo direct("libnosuchcufile.so.0");
  EXPECT_EQ(direct.why_not(), "libnosuchcufile.so.0 was not found");
}

TEST_F(CudaDirectIo, ALibraryThatIsAnotherOrDoesNotOpenIsNotUsed) {
  EXPECT_THAT(DirectIo("libm.so.6").why_not(), HasSubstr("libm.so.6 has no cuFile"));
  const ScopedVariable closed("FAKE_CUFILE_CLOSED", "1");
  EXPECT_EQ(DirectIo(FAKE_CUFILE).why_not(), "the driver of cuFile does not open (status 5001)");
}

TEST_F(CudaDirectIo, WhatIsWrittenIsReadAndFilesAreForgotten) {
  void* const library = dlopen(FAKE_CUFILE, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const int& known = *static_cast<int*>(dlsym(library, "fake_cufile_files"));
  const FileOfBytes first(scratch_ / "first");
  const FileOfBytes second(scratch_ / "second");
  {
    DirectIo direct(FAKE_CUFILE);
    ASSERT_EQ(direct.why_not(), "");
    const std::vector<std::byte> bytes = some_bytes(12'288);
    std::vector<std::byte> read(bytes.size());
    for (const FileOfBytes* file : {&first, &second, &first}) {
      EXPECT_EQ(direct.write(file->descriptor(), 4096, bytes.data(), std::ssize(bytes)), std::ssize(bytes));
      read.assign(bytes.size(), std::byte{0});
      EXPECT_EQ(direct.read(file->descriptor(), 4096, read.data(), std::ssize(read)), std::ssize(read));
      EXPECT_EQ(read, bytes);
    }
    EXPECT_EQ(direct.read(first.descriptor(), 8192, read.data(), std::ssize(read)), 8192) << "the end of the file";
    EXPECT_EQ(direct.read(first.descriptor(), 1 << 20, read.data(), 4096), 0);
    EXPECT_EQ(known, 2);
    direct.forget_files();
    EXPECT_EQ(known, 0);
    EXPECT_EQ(direct.read(second.descriptor(), 4096, read.data(), 4096), 4096);
  }
  EXPECT_EQ(known, 0) << "at its end";
}

TEST_F(CudaDirectIo, FailuresAreNumbersOfTheSystem) {
  const FileOfBytes file(scratch_ / "file");
  DirectIo direct(FAKE_CUFILE);
  std::vector<std::byte> bytes(4096);
  EXPECT_EQ(direct.read(file.descriptor(), -4096, bytes.data(), 4096), -EINVAL);
  {
    const ScopedVariable fails("FAKE_CUFILE_FAILS", "1");
    EXPECT_EQ(direct.read(file.descriptor(), 0, bytes.data(), 4096), -EIO);
  }
  direct.forget_files();
  EXPECT_EQ(direct.why_not(file.descriptor()), "");
  const ScopedVariable refuses("FAKE_CUFILE_REFUSES", "1");
  EXPECT_THAT(direct.why_not(file.descriptor()), HasSubstr("cuFile refuses files there (status "));
  try {
    direct.read(file.descriptor(), 0, bytes.data(), 4096);
    FAIL() << "it was taken";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--device-direct false"));
  }
}

// Between a file and the device's pages, past the host where cuFile can.
TEST_F(CudaDirectIo, ADeviceReadsAndWritesFiles) {
  if (const std::string reason = ops_test::cuda_reason(); !reason.empty()) GTEST_SKIP() << reason;
  ops_test::ReservedDevice device;
  device.reserve(4 * ops_test::ReservedDevice::page_bytes);
  const FileOfBytes file(scratch_ / "file");
  if (const std::string why = device->why_not_direct(file.descriptor()); !why.empty()) GTEST_SKIP() << why;
  const auto bytes = some_bytes(static_cast<std::size_t>(2 * ops_test::ReservedDevice::page_bytes));
  const std::int64_t page = ops_test::ReservedDevice::page_bytes;
  device->attach(0, std::vector{PageId{2}, PageId{0}}, DeviceStream::disk);
  device->attach(2 * page, std::vector{PageId{1}, PageId{3}}, DeviceStream::disk);
  device->put(device->address(0), bytes.data(), std::ssize(bytes));
  EXPECT_EQ(device->write_file(file.descriptor(), 4096, device->address(0), std::ssize(bytes)), std::ssize(bytes));
  EXPECT_EQ(device->read_file(file.descriptor(), 4096, device->address(2 * page), std::ssize(bytes)),
            std::ssize(bytes));
  std::vector<std::byte> seen(bytes.size());
  device->get(seen.data(), device->address(2 * page), std::ssize(seen));
  EXPECT_TRUE(seen == bytes);
  ASSERT_EQ(pread(file.descriptor(), seen.data(), seen.size(), 4096), std::ssize(seen));
  EXPECT_TRUE(seen == bytes);
}

}  // namespace
}  // namespace spillway
