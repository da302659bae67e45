// Event files: checksums by their published vectors, framing, names, failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "scratch_folder.h"
#include "telemetry/crc32c.h"
#include "telemetry/tensorboard_file.h"

namespace spillway {
namespace {

using testing::HasSubstr;

TEST(Crc32c, AgreesWithTheVectorsOfRfc3720) {
  std::string ascending;
  std::string descending;
  for (int i = 0; i < 32; ++i) {
    ascending += static_cast<char>(i);
    descending += static_cast<char>(31 - i);
  }
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(ascending), 0x46DD794EU);
  EXPECT_EQ(crc32c(descending), 0x113FDB5CU);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(Crc32c, IsMaskedByRotationAndOffset) {
  const std::uint32_t crc = crc32c("foo");
  EXPECT_EQ(masked_crc32c("foo"), ((crc >> 15) | (crc << 17)) + 0xA282EAD8U);
  EXPECT_NE(masked_crc32c("foo"), crc);
}

TEST(TensorBoard, FramesARecord) {
  const std::string record = tensorboard_record("hello");
  ASSERT_EQ(record.size(), 8U + 4 + 5 + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\x05\0\0\0\0\0\0\0", 8));
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 4; i-- > 0;) value = (value << 8) | static_cast<unsigned char>(record[at + i]);
    return value;
  };
  EXPECT_EQ(word(8), masked_crc32c(record.substr(0, 8)));
  EXPECT_EQ(record.substr(12, 5), "hello");
  EXPECT_EQ(word(17), masked_crc32c("hello"));
}

// Made within the same second, and after one whose name is of the future.
TEST(TensorBoard, ALaterFileComesLaterByName) {
  const ScratchFolder scratch;
  const auto folder = scratch / "runs";
  const auto first = TensorBoardFile(folder, 1).path();
  const auto second = TensorBoardFile(folder, 5).path();
  EXPECT_LT(first.filename().string(), second.filename().string());
  EXPECT_THAT(first.filename().string(), HasSubstr("tfevents"));
  scratch.file("runs/events.out.tfevents.9000000000.far.1.0", "");
  EXPECT_THAT(TensorBoardFile(folder, 9).path().filename().string(), HasSubstr("tfevents.9000000001"));
}

TEST(TensorBoard, EachStepIsInTheFileWhenWriteReturns) {
  const ScratchFolder scratch;
  TensorBoardFile file(scratch.path(), 1);
  auto size = std::filesystem::file_size(file.path());
  for (std::int64_t step = 1; step <= 3; ++step) {
    StepRecord r;
    r.step = step;
    file.write(r);
    const auto now = std::filesystem::file_size(file.path());
    EXPECT_GT(now, size);
    size = now;
  }
  EXPECT_THAT(scratch.text_of(file.path().filename().string()), HasSubstr("train/loss"));
}

TEST(TensorBoard, AFolderThatCannotBeMadeIsADeviceError) {
  const ScratchFolder scratch;
  scratch.file("file", "");
  EXPECT_THROW(TensorBoardFile(scratch / "file/runs", 1), DeviceError);
}

}  // namespace
}  // namespace spillway
