// The bytes of a manifest, written and read. docs/formats.md describes them.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "checkpoint/manifest.h"
#include "store/byte_fields.h"

namespace spillway {
namespace {

constexpr std::uint64_t manifest_magic = 0x314e414d4c505053;  // "SPPLMAN1"
constexpr std::size_t portion_bytes = std::size_t{16} << 10;
constexpr std::size_t dtype_bytes = 4;
// The least bytes of each record, by which counts are judged before memory is taken for them.
constexpr std::int64_t tensor_record_bytes = 24;
constexpr std::int64_t extent_record_bytes = 16;
constexpr std::int64_t group_record_bytes = 16;
constexpr std::int64_t piece_record_bytes = 32;
constexpr std::int64_t most_name_bytes = 4096;
constexpr std::int64_t most_elements = std::int64_t{1} << 56;
constexpr std::int32_t most_files = 1024;

class Output {
 public:
  explicit Output(const std::function<void(std::span<const std::byte>)>& sink) : sink_(sink) {
    buffer_.reserve(portion_bytes);
  }
  void u32(std::int64_t value) { number(static_cast<std::uint64_t>(value), 4); }
  void u64(std::int64_t value) { number(static_cast<std::uint64_t>(value), 8); }
  void number(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) put(static_cast<std::byte>(value >> (8 * i) & 0xffU));
  }
  void raw(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) put(byte);
  }
  std::int64_t finish() {
    pass_on();
    return total_bytes_;
  }

 private:
  void put(std::byte byte) {
    buffer_.push_back(byte);
    if (buffer_.size() == portion_bytes) pass_on();
  }
  void pass_on() {
    if (!buffer_.empty()) sink_(buffer_);
    total_bytes_ += std::ssize(buffer_);
    buffer_.clear();
  }

  const std::function<void(std::span<const std::byte>)>& sink_;
  std::vector<std::byte> buffer_;
  std::int64_t total_bytes_ = 0;
};

class Input {
 public:
  Input(const std::function<void(std::span<std::byte>)>& source, std::int64_t bytes, std::string_view name)
      : source_(source), left_bytes_(bytes), name_(name) {}

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw DeviceError("{}: {}", name_, fmt::format(format, std::forward<Args>(args)...));
  }

  std::uint64_t number(int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= static_cast<std::uint64_t>(get()) << (8 * i);
    return value;
  }
  // A number from 0 to `most`.
  std::int64_t bounded(int bytes, std::int64_t most, std::string_view what) {
    const std::uint64_t value = number(bytes);
    if (value > static_cast<std::uint64_t>(most)) fail("{} is {}, at most {} is possible", what, value, most);
    return static_cast<std::int64_t>(value);
  }
  // How many records of at least this size follow; there must be bytes for them.
  std::int64_t count(std::int64_t record_bytes, std::string_view what) {
    return bounded(8, std::max<std::int64_t>(0, left() - 8) / record_bytes, what);
  }
  // Grows with what is there: what is said to follow may not be true.
  std::string text(std::int64_t bytes) {
    std::string text;
    for (std::int64_t i = 0; i < bytes; ++i) text += static_cast<char>(get());
    return text;
  }
  std::int64_t left() const { return left_bytes_ + static_cast<std::int64_t>(end_ - at_); }

 private:
  std::byte get() {
    if (at_ == end_) refill();
    return buffer_[at_++];
  }
  void refill() {
    if (left_bytes_ == 0) fail("it ends in the middle of a record");
    at_ = 0;
    end_ = std::min(buffer_.size(), static_cast<std::size_t>(left_bytes_));
    source_(std::span(buffer_).first(end_));
    left_bytes_ -= static_cast<std::int64_t>(end_);
  }

  const std::function<void(std::span<std::byte>)>& source_;
  std::int64_t left_bytes_;
  std::string_view name_;
  std::array<std::byte, portion_bytes> buffer_{};
  std::size_t at_ = 0;
  std::size_t end_ = 0;
};

void write_dtype(Output& out, DType dtype) {
  std::string name(name_of(dtype));
  name.resize(dtype_bytes, '\0');
  out.raw(std::as_bytes(std::span(name)));
}

DType read_dtype(Input& in, std::string_view tensor) {
  const std::string name = in.text(dtype_bytes);
  for (const DType dtype :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u32, DType::u16, DType::u8}) {
    std::string padded(name_of(dtype));
    padded.resize(dtype_bytes, '\0');
    if (padded == name) return dtype;
  }
  in.fail("tensor {} has no known type", tensor);
}

void read_header(Input& in, Manifest& manifest) {
  if (in.number(8) != manifest_magic) in.fail("it does not begin like a manifest");
  if (const std::uint64_t version = in.number(4); version != manifest_version) {
    in.fail("it is of version {}, this program reads version {}: use the one that wrote it", version, manifest_version);
  }
  manifest.files = static_cast<std::int32_t>(in.bounded(4, most_files, "the number of files"));
  for (std::uint8_t& byte : manifest.run.bytes) byte = static_cast<std::uint8_t>(in.number(1));
  manifest.generation = in.number(8);
  manifest.slot_bytes = in.bounded(8, INT32_MAX, "the size of slots");
  if (manifest.slot_bytes < slot_file_block_bytes) in.fail("slots have {} bytes", manifest.slot_bytes);
  manifest.facts.step = in.bounded(8, INT64_MAX, "the step");
  manifest.facts.run = in.text(in.count(1, "the length of the run's text"));
}

void read_tensors(Input& in, Manifest& manifest) {
  std::set<std::string_view> names;
  const std::int64_t count = in.count(tensor_record_bytes, "the number of tensors");
  manifest.tensors.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    ManifestTensor tensor;
    tensor.name = in.text(in.bounded(4, std::min(most_name_bytes, in.left()), "the length of a name"));
    tensor.dtype = read_dtype(in, tensor.name);
    tensor.rows = in.bounded(8, most_elements, "the rows of a tensor");
    tensor.cols = in.bounded(8, most_elements, "the columns of a tensor");
    if (tensor.rows < 1 || tensor.cols < 1 || tensor.rows > most_elements / tensor.cols) {
      in.fail("tensor {} has {} rows and {} columns", tensor.name, tensor.rows, tensor.cols);
    }
    manifest.tensors.push_back(std::move(tensor));
    if (!names.insert(manifest.tensors.back().name).second) {
      in.fail("tensor {} occurs twice", manifest.tensors.back().name);
    }
  }
}

void read_extents(Input& in, Manifest& manifest) {
  const std::int64_t count = in.count(extent_record_bytes, "the number of slots");
  for (std::int64_t i = 0; i < count; ++i) {
    ManifestExtent extent;
    extent.file = static_cast<std::int32_t>(in.bounded(4, manifest.files - 1, "the file of a slot"));
    extent.index = static_cast<std::int32_t>(in.bounded(4, INT32_MAX, "the index of a slot"));
    extent.checksum = in.number(8);
    manifest.extents.push_back(extent);
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> places;
  places.reserve(manifest.extents.size());
  for (const ManifestExtent& extent : manifest.extents) places.emplace_back(extent.file, extent.index);
  std::sort(places.begin(), places.end());
  if (const auto twice = std::adjacent_find(places.begin(), places.end()); twice != places.end()) {
    in.fail("slot {} of file {} is named twice", twice->second, twice->first);
  }
}

void read_groups(Input& in, Manifest& manifest) {
  const std::int64_t count = in.count(group_record_bytes, "the number of groups");
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    ManifestGroup group;
    group.bytes = in.bounded(8, most_elements, "the bytes of a group");
    group.first_extent = next;
    group.extents = in.bounded(8, std::ssize(manifest.extents) - next, "the slots of a group");
    if (group.extents != 0 && group.extents != divide_up(group.bytes, manifest.slot_bytes)) {
      in.fail("group {} has {} bytes in {} slots", i, group.bytes, group.extents);
    }
    for (std::int64_t e = 0; e < group.extents; ++e) {
      manifest.extents[static_cast<std::size_t>(next + e)].bytes =
          std::min(manifest.slot_bytes, group.bytes - e * manifest.slot_bytes);
    }
    next += group.extents;
    manifest.groups.push_back(group);
  }
  if (next != std::ssize(manifest.extents)) in.fail("{} slots belong to no group", std::ssize(manifest.extents) - next);
}

void check_piece(const Input& in, const Manifest& manifest, const ManifestPiece& piece) {
  const ManifestTensor& tensor = manifest.tensor_of(piece);
  if (piece.row_begin >= piece.row_end || piece.row_end > tensor.rows) {
    in.fail("{} is not in a tensor of {} rows", manifest.describe(piece), tensor.rows);
  }
  const ManifestGroup& group = manifest.groups[static_cast<std::size_t>(piece.group)];
  if (piece.offset_bytes > group.bytes || manifest.bytes_of(piece) > group.bytes - piece.offset_bytes) {
    in.fail("{} goes beyond the {} bytes of group {}", manifest.describe(piece), group.bytes, piece.group);
  }
  if (manifest.pieces.empty()) return;
  const ManifestPiece& before = manifest.pieces.back();
  if (before.group > piece.group ||
      (before.group == piece.group && before.offset_bytes + manifest.bytes_of(before) > piece.offset_bytes)) {
    in.fail("{} does not follow {}", manifest.describe(piece), manifest.describe(before));
  }
}

void read_pieces(Input& in, Manifest& manifest) {
  const std::int64_t count = in.count(piece_record_bytes, "the number of pieces");
  for (std::int64_t i = 0; i < count; ++i) {
    ManifestPiece piece;
    const std::int64_t tensors = std::ssize(manifest.tensors);
    const std::int64_t groups = std::ssize(manifest.groups);
    if (tensors == 0 || groups == 0) in.fail("there are pieces, but {} tensors and {} groups", tensors, groups);
    piece.tensor = static_cast<std::int32_t>(in.bounded(4, tensors - 1, "the tensor of a piece"));
    piece.group = static_cast<std::int32_t>(in.bounded(4, groups - 1, "the group of a piece"));
    piece.row_begin = in.bounded(8, most_elements, "the first row of a piece");
    piece.row_end = in.bounded(8, most_elements, "the last row of a piece");
    piece.offset_bytes = in.bounded(8, most_elements, "the offset of a piece");
    check_piece(in, manifest, piece);
    manifest.pieces.push_back(piece);
  }
}

// Every row of every tensor lies in exactly one piece.
void check_cover(const Input& in, const Manifest& manifest) {
  std::vector<std::size_t> order(manifest.pieces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const ManifestPiece& left = manifest.pieces[a];
    const ManifestPiece& right = manifest.pieces[b];
    return std::pair(left.tensor, left.row_begin) < std::pair(right.tensor, right.row_begin);
  });
  std::size_t at = 0;
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
    std::int64_t row = 0;
    for (; at < order.size() && static_cast<std::size_t>(manifest.pieces[order[at]].tensor) == t; ++at) {
      if (manifest.pieces[order[at]].row_begin != row) break;
      row = manifest.pieces[order[at]].row_end;
    }
    if (row != manifest.tensors[t].rows)
      in.fail("row {} of tensor {} is not in one piece", row, manifest.tensors[t].name);
  }
  if (at != order.size()) in.fail("{} occurs twice", manifest.describe(manifest.pieces[order[at]]));
}

}  // namespace

std::int64_t write_manifest(const Manifest& manifest, const std::function<void(std::span<const std::byte>)>& sink) {
  Output out(sink);
  out.number(manifest_magic, 8);
  out.number(manifest_version, 4);
  out.u32(manifest.files);
  out.raw(std::as_bytes(std::span(manifest.run.bytes)));
  out.number(manifest.generation, 8);
  out.u64(manifest.slot_bytes);
  out.u64(manifest.facts.step);
  out.u64(std::ssize(manifest.facts.run));
  out.raw(std::as_bytes(std::span(manifest.facts.run)));
  out.u64(std::ssize(manifest.tensors));
  for (const ManifestTensor& tensor : manifest.tensors) {
    out.u32(std::ssize(tensor.name));
    out.raw(std::as_bytes(std::span(tensor.name)));
    write_dtype(out, tensor.dtype);
    out.u64(tensor.rows);
    out.u64(tensor.cols);
  }
  out.u64(std::ssize(manifest.extents));
  for (const ManifestExtent& extent : manifest.extents) {
    out.u32(extent.file);
    out.u32(extent.index);
    out.number(extent.checksum, 8);
  }
  out.u64(std::ssize(manifest.groups));
  for (const ManifestGroup& group : manifest.groups) {
    out.u64(group.bytes);
    out.u64(group.extents);
  }
  out.u64(std::ssize(manifest.pieces));
  for (const ManifestPiece& piece : manifest.pieces) {
    out.u32(piece.tensor);
    out.u32(piece.group);
    out.u64(piece.row_begin);
    out.u64(piece.row_end);
    out.u64(piece.offset_bytes);
  }
  return out.finish();
}

Manifest read_manifest(const std::function<void(std::span<std::byte>)>& source, std::int64_t bytes,
                       std::string_view name) {
  Input in(source, bytes, name);
  Manifest manifest;
  read_header(in, manifest);
  read_tensors(in, manifest);
  read_extents(in, manifest);
  read_groups(in, manifest);
  read_pieces(in, manifest);
  if (in.left() != 0) in.fail("{} bytes follow its end", in.left());
  check_cover(in, manifest);
  return manifest;
}

}  // namespace spillway
