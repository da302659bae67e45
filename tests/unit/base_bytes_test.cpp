#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

TEST(Bytes, ReadsWhatPeopleWrite) {
  EXPECT_EQ(parse_bytes("600MiB", "memory"), 600 * mib);
  EXPECT_EQ(parse_bytes("1.5 GiB", "memory"), 1536 * mib);
  EXPECT_EQ(parse_bytes("2g", "memory"), 2 * gib);
  EXPECT_EQ(parse_bytes("64k", "memory"), 64 * kib);
  EXPECT_EQ(parse_bytes("2GB", "memory"), 2'000'000'000);
  EXPECT_EQ(parse_bytes("4096", "memory"), 4096);
  EXPECT_EQ(parse_bytes("0", "memory"), 0);
}

TEST(Bytes, RefusesTheRestByName) {
  for (const char* text : {"", "much", "-1GiB", "1.2.3M", "3 pebibytes", "GiB", "nan", "inf", "1e30GiB"}) {
    EXPECT_THAT([&] { parse_bytes(text, "memory"); },
                Throws<UserError>(Property(&UserError::what, HasSubstr("memory"))))
        << text;
  }
}

TEST(Bytes, WritesInTheLargestUnit) {
  EXPECT_EQ(format_bytes(12), "12 B");
  EXPECT_EQ(format_bytes(64 * kib), "64 KiB");
  EXPECT_EQ(format_bytes(600 * mib), "600 MiB");
  EXPECT_EQ(format_bytes(gib + gib / 2), "1.50 GiB");
  EXPECT_EQ(format_bytes(tib - gib), "1023.00 GiB");
  EXPECT_EQ(format_bytes(tib * 5 / 2), "2.50 TiB");
}

TEST(Bytes, RoundsUp) {
  EXPECT_EQ(round_up(0, 8), 0);
  EXPECT_EQ(round_up(1, 8), 8);
  EXPECT_EQ(round_up(16, 8), 16);
  EXPECT_EQ(divide_up(17, 8), 3);
}

}  // namespace
}  // namespace spillway
