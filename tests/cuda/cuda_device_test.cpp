// A CUDA device's memory: pages at addresses, copies through the host's pages wherever those lie, and marks.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "cuda/cuda_ops.h"

namespace spillway {
namespace {

using namespace ops_test;

TEST(CudaBuild, WithoutADeviceItSaysWhatIsMissing) {
  const std::string reason = cuda_reason();
  if (reason.empty()) GTEST_SKIP() << "there is a device";
  EXPECT_THAT(reason, testing::HasSubstr("device is cuda"));
  EXPECT_THAT(reason, testing::HasSubstr("--device cpu"));
}

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = cuda_reason(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

std::vector<std::byte> pattern(std::int64_t bytes, int seed) {
  std::vector<std::byte> made(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::byte>((i * 31 + i / 257 + seed) & 0xff);
  return made;
}

std::vector<std::byte> bytes_at(Accelerator& device, const std::byte* address, std::int64_t bytes) {
  std::vector<std::byte> seen(static_cast<std::size_t>(bytes));
  device.get(seen.data(), address, bytes);
  return seen;
}

// The host's pages are moved about before each copy; what the processor sees at their new place is what goes up and
// what comes down.
TEST_F(CudaDevice, CopiesFollowPagesThatMove) {
  ReservedDevice device;
  device.reserve(4 * ReservedDevice::page_bytes);
  HostPagePool& host = device.host();
  const std::int64_t page = host.page_bytes();
  const std::int64_t bytes = page + 12345;
  int seed = 0;
  const std::vector<std::vector<PageId>> layouts{
      {PageId{2}, PageId{0}}, {PageId{0}, PageId{1}}, {PageId{3}, PageId{2}}, {PageId{1}, PageId{2}}};
  for (const std::int64_t place : {2 * page, std::int64_t{0}, page}) {
    for (const auto& pages : layouts) {
      for (std::size_t i = 0; i < pages.size(); ++i) host.attach(pages[i], place + static_cast<std::int64_t>(i) * page);
      std::byte* const data = host.address(place);
      const std::vector<std::byte> up = pattern(bytes, ++seed);
      std::memcpy(data, up.data(), up.size());
      device->copy_up(device->address(0), {data, pages, bytes});
      EXPECT_TRUE(bytes_at(*device, device->address(0), bytes) == up) << "up, round " << seed;
      const std::vector<std::byte> down = pattern(bytes, ++seed);
      device->put(device->address(0), down.data(), bytes);
      device->copy_down({data, pages, bytes}, device->address(0));
      EXPECT_EQ(std::memcmp(data, down.data(), down.size()), 0) << "down, round " << seed;
    }
  }
}

TEST_F(CudaDevice, EveryStayHasMemoryOfItsOwnWhereverItsPagesWere) {
  ReservedDevice device;
  device.reserve(3 * ReservedDevice::page_bytes);
  const std::int64_t page = ReservedDevice::page_bytes;
  std::vector<PageId> pages{PageId{2}, PageId{0}, PageId{1}};
  for (int round = 0; round < 6; ++round) {
    device->attach(0, pages, round % 2 == 0 ? DeviceStream::compute : DeviceStream::up);
    for (int i = 0; i < 3; ++i) {
      const auto bytes = pattern(page, 3 * round + i);
      device->put(device->address(i * page), bytes.data(), page);
    }
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(bytes_at(*device, device->address(i * page), page) == pattern(page, 3 * round + i)) << round;
    }
    std::rotate(pages.begin(), pages.begin() + 1, pages.end());
  }
}

TEST_F(CudaDevice, MarksAreDoneInOrder) {
  ReservedDevice device;
  device.reserve(ReservedDevice::page_bytes);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::int64_t> marks;
    for (std::int64_t i = 0; i < Accelerator::most_marks; ++i) {
      device->fill(device->address(0), static_cast<std::byte>(i), 4096, DeviceStream::compute);
      marks.push_back(device->mark());
    }
    device->wait(marks.back());
    for (const std::int64_t mark : marks) EXPECT_TRUE(device->is_done(mark));
    EXPECT_TRUE(bytes_at(*device, device->address(0), 4096) ==
                std::vector<std::byte>(4096, static_cast<std::byte>(Accelerator::most_marks - 1)));
  }
}

TEST_F(CudaDevice, MoreMemoryThanThereIsIsRefused) {
  ReservedDevice device;
  const std::int64_t pages = device->memory_bytes() / ReservedDevice::page_bytes + 1;
  PagePoolOptions options;
  options.page_count = 1;
  options.address_bytes = options.page_bytes;
  HostPagePool host(options);
  EXPECT_THROW(device->reserve({ReservedDevice::page_bytes, pages, pages * ReservedDevice::page_bytes, 4096}, host),
               DoesNotFit);
  device->give_back();
}

TEST_F(CudaDevice, PagesAreThoseOfTheDevice) {
  ReservedDevice device;
  PagePoolOptions options;
  options.page_count = 1;
  options.address_bytes = options.page_bytes;
  HostPagePool host(options);
  EXPECT_THROW(device->reserve({16384, 4, 65536, 4096}, host), UserError);
  device->give_back();
}

}  // namespace
}  // namespace spillway
