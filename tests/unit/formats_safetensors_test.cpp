#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "base/error.h"
#include "formats/safetensors.h"
#include "scratch_folder.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

std::string file_text(std::string_view json, std::size_t data_bytes) {
  const std::uint64_t length = json.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof length);
  text += json;
  for (std::size_t i = 0; i < data_bytes; ++i) text += static_cast<char>(i);
  return text;
}

std::vector<std::byte> bytes_of(const SafetensorsReader& reader, std::string_view name) {
  const SafetensorsEntry* entry = reader.find(name);
  EXPECT_NE(entry, nullptr) << name;
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry->bytes));
  reader.read(*entry, 0, bytes);
  return bytes;
}

std::vector<std::byte> pattern(std::size_t count, int seed) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  return bytes;
}

TEST(SafetensorsHeader, ReadsEntriesByOffset) {
  const SafetensorsHeader header = parse_safetensors_header(
      R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},"__metadata__":{"format":"pt"},)"
      R"("a":{"data_offsets":[0,8],"shape":[],"dtype":"F64"},"empty":{"dtype":"F32","shape":[0,5],"data_offsets":[8,8]}}  )",
      20, "m");
  ASSERT_EQ(header.entries.size(), 3U);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[0].bytes, 8);
  EXPECT_EQ(header.entries[1].name, "empty");
  EXPECT_EQ(header.entries[2].dtype(), DType::bf16);
  EXPECT_THAT(header.entries[2].shape, ElementsAre(2, 3));
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(SafetensorsHeader, RefusesDamage) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "JSON"},
      {"[]", "cannot stand"},
      {"7", "cannot stand"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})", "JSON"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} x)", "JSON"},
      {R"({"a":7})", "'a'"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "'a' lacks"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "'a' lacks"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "shape"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "shape"},
      {R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", "shape"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})", "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "'a'"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "truncated"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "shape [3]"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", "shape"},
      {R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", "'Q4'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":1}})", "extra"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "'a' twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       "'b' begins"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U16","shape":[1],"data_offsets":[6,8]}})",
       "'b' begins"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "damaged"},
      {R"({"__metadata__":{"a":1}})", "'a'"},
      {R"({"__metadata__":{},"__metadata__":{}})", "twice"},
  };
  for (const auto& [json, what] : cases) {
    EXPECT_THAT([&] { parse_safetensors_header(json, 8, "model.file"); },
                Throws<UserError>(Property(&UserError::what, HasSubstr(what))))
        << json;
    EXPECT_THAT([&] { parse_safetensors_header(json, 8, "model.file"); },
                Throws<UserError>(Property(&UserError::what, HasSubstr("model.file"))))
        << json;
  }
}

TEST(SafetensorsReader, RefusesLengthsThatLie) {
  const ScratchFolder folder;
  const std::string good = file_text(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  EXPECT_NO_THROW(SafetensorsReader(folder.file("good", good)));
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_THROW(SafetensorsReader(folder.file("cut", good.substr(0, bytes))), UserError) << bytes;
  }
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{100}, std::uint64_t{200'000'000}, ~std::uint64_t{0}}) {
    std::string lie = good;
    std::memcpy(lie.data(), &length, sizeof length);
    EXPECT_THROW(SafetensorsReader(folder.file("lie", lie)), UserError) << length;
  }
  EXPECT_THROW(SafetensorsReader(folder / "missing"), UserError);
  EXPECT_THROW(SafetensorsReader(folder.path()), UserError);
}

TEST(SafetensorsWriter, WhatIsWrittenInAnyOrderReadsBack) {
  const ScratchFolder folder;
  const std::vector<SafetensorsTensor> tensors{{"half", "BF16", {3, 5}},
                                               {"mask", "BOOL", {7}},
                                               {"wide", "F32", {4, 4}},
                                               {"none", "F32", {0}},
                                               {"one", "F32", {}}};
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  {
    SafetensorsWriter writer(folder / "m.safetensors", tensors, {{"format", "pt"}});
    std::vector<std::tuple<std::string, std::int64_t, std::int64_t>> parts;
    for (const SafetensorsEntry& entry : writer.entries()) {
      for (std::int64_t at = 0; at < entry.bytes; at += 5) {
        parts.emplace_back(entry.name, at, std::min<std::int64_t>(5, entry.bytes - at));
      }
    }
    std::ranges::shuffle(parts, random);
    for (const auto& [name, at, count] : parts) {
      const std::vector<std::byte> whole = pattern(256, static_cast<int>(name[0]));
      writer.write(name, at, std::span(whole).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)));
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "m.safetensors"));
    writer.finish();
  }
  const SafetensorsReader reader(folder / "m.safetensors");
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  ASSERT_EQ(reader.entries().size(), tensors.size());
  for (const SafetensorsTensor& tensor : tensors) {
    const SafetensorsEntry* entry = reader.find(tensor.name);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->stored_dtype, tensor.stored_dtype);
    EXPECT_EQ(entry->shape, tensor.shape);
    EXPECT_EQ(bytes_of(reader, tensor.name), pattern(static_cast<std::size_t>(entry->bytes), tensor.name[0]));
    EXPECT_EQ(entry->offset % stored_element_bytes(entry->stored_dtype), 0);
  }
  // Nothing else is left in the folder.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(SafetensorsWriter, AnIncompleteFileIsNeverSeen) {
  const ScratchFolder folder;
  const std::vector<SafetensorsTensor> tensors{{"a", "F32", {2}}};
  folder.file("m.safetensors", "old");
  {
    SafetensorsWriter writer(folder / "m.safetensors", tensors, {});
    writer.write("a", 0, pattern(4, 0));
  }
  EXPECT_EQ(folder.text_of("m.safetensors"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(SafetensorsWriterDeathTest, UnwrittenAndTwiceWrittenBytesAreCaught) {
  const ScratchFolder folder;
  const std::vector<SafetensorsTensor> tensors{{"a", "F32", {2}}, {"b", "F32", {2}}};
  EXPECT_DEATH(
      {
        SafetensorsWriter writer(folder / "m", tensors, {});
        writer.write("a", 0, pattern(8, 0));
        writer.write("b", 0, pattern(7, 0));
        writer.finish();
      },
      "'b'.*not written whole");
  EXPECT_DEATH(
      {
        SafetensorsWriter writer(folder / "m", tensors, {});
        writer.write("a", 0, pattern(4, 0));
        writer.write("a", 3, pattern(4, 0));
      },
      "written twice");
}

TEST(SafetensorsWriter, AFullDiskIsADeviceError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  const ScratchFolder folder;
  std::filesystem::create_symlink("/dev/full", folder / ".m.incomplete");
  EXPECT_THAT(
      [&] {
        SafetensorsWriter(folder / "m", std::vector<SafetensorsTensor>{{"a", "F32", {2}}}, {});
      },
      Throws<DeviceError>(Property(&DeviceError::what, HasSubstr("No space left"))));
}

class ModelFolderTest : public ::testing::Test {
 protected:
  void write(std::int64_t shard_bytes) {
    folder_.file("config.json", "{}");
    ModelFolderWriter writer(folder_.path(), tensors_, {{"format", "pt"}}, shard_bytes);
    for (int i = 0; i < 5; ++i) writer.write(tensors_[static_cast<std::size_t>(i)].name, 0, pattern(40, i));
    writer.finish();
  }
  void expect_same() {
    const ModelFolder model(folder_.path());
    ASSERT_EQ(model.tensors().size(), 5U);
    EXPECT_EQ(model.tensor_bytes(), 200);
    for (int i = 0; i < 5; ++i) {
      const ModelFolder::Tensor* tensor = model.find(tensors_[static_cast<std::size_t>(i)].name);
      ASSERT_NE(tensor, nullptr);
      std::vector<std::byte> bytes(40);
      model.read(*tensor, 0, bytes);
      EXPECT_EQ(bytes, pattern(40, i));
    }
    EXPECT_EQ(model.find("t9"), nullptr);
  }

  ScratchFolder folder_;
  std::vector<SafetensorsTensor> tensors_{
      {"t0", "F32", {10}}, {"t1", "F32", {10}}, {"t2", "F32", {5, 2}}, {"t3", "F32", {10}}, {"t4", "F32", {10}}};
};

TEST_F(ModelFolderTest, OneFile) {
  write(1000);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "model.safetensors"));
  expect_same();
}

TEST_F(ModelFolderTest, Shards) {
  write(100);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "model-00003-of-00003.safetensors"));
  EXPECT_THAT(folder_.text_of("model.safetensors.index.json"), HasSubstr("\"total_size\": 200"));
  expect_same();
}

TEST_F(ModelFolderTest, ATensorLargerThanAShardHasOneOfItsOwn) {
  write(10);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "model-00005-of-00005.safetensors"));
  expect_same();
}

TEST_F(ModelFolderTest, TheOtherFormIsNotLeftToShadow) {
  write(1000);
  EXPECT_THROW(write(100), UserError);
  expect_same();
}

TEST_F(ModelFolderTest, DamageIsNamed) {
  const auto refused = [&](const std::string& what) {
    EXPECT_THAT([&] { ModelFolder model(folder_.path()); },
                Throws<UserError>(Property(&UserError::what, HasSubstr(what))));
  };
  refused("config.json");
  folder_.file("config.json", "{}");
  refused("neither model.safetensors nor");
  write(100);
  const std::string index = folder_.text_of("model.safetensors.index.json");
  folder_.file("model.safetensors.index.json", "{}");
  refused("weight_map");
  folder_.file("model.safetensors.index.json", R"({"weight_map":{"t0":"../elsewhere"}})");
  refused("same folder");
  folder_.file("model.safetensors.index.json", R"({"weight_map":{"t7":"model-00001-of-00003.safetensors"}})");
  refused("'t7'");
  folder_.file("model.safetensors.index.json", R"({"weight_map":{"t0":"model-00001-of-00003.safetensors"}})");
  EXPECT_THAT(ModelFolder(folder_.path()).unlisted(), ElementsAre("t1"));
  folder_.file("model.safetensors.index.json", index);
  std::filesystem::remove(folder_ / "model-00002-of-00003.safetensors");
  refused("model-00002-of-00003.safetensors is missing");
}

}  // namespace
}  // namespace spillway
