#include "text/dataset.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <memory>
#include <string>
#include <system_error>

#include "base/error.h"
#include "formats/jsonl.h"
#include "formats/npy.h"
#include "formats/text_file.h"
#include "text/dataset_cut.h"

namespace spillway {
namespace {

constexpr std::size_t buffer_ids = 1 << 16;
// Dirty pages of the store being written stay below this.
constexpr std::int64_t sync_period_bytes = 32 * mib;

DType dtype_for(std::int64_t vocab_size) { return vocab_size <= (1 << 16) ? DType::u16 : DType::u32; }

// The hash of a row of ids that comes in parts.
class IdHash {
 public:
  IdHash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  void add(std::span<const std::uint32_t> ids) { XXH3_64bits_update(state_.get(), ids.data(), ids.size_bytes()); }
  std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

// Appends ids to the file of a store.
class IdWriter {
 public:
  IdWriter(File& file, std::int64_t vocab_size) : file_(file), vocab_size_(vocab_size), dtype_(dtype_for(vocab_size)) {}

  std::int64_t count() const { return count_; }
  std::uint64_t hash() const { return hash_.value(); }
  DType dtype() const { return dtype_; }

  void append(std::span<const std::uint32_t> ids, const std::filesystem::path& source) {
    for (const std::uint32_t id : ids) {
      if (id >= vocab_size_) {
        throw UserError(
            "{}: the tokenizer gives token id {}, but the model has a vocab_size of {}; the tokenizer is not the "
            "model's",
            source.string(), id, vocab_size_);
      }
      wide_.push_back(id);
      if (wide_.size() == buffer_ids) flush();
    }
    count_ += static_cast<std::int64_t>(ids.size());
  }

  void finish() {
    flush();
    file_.sync();
    file_.drop_cache(0, 0);
  }

 private:
  void flush() {
    hash_.add(wide_);
    if (dtype_ == DType::u32) {
      put(std::as_bytes(std::span(wide_)));
    } else {
      narrow_.resize(wide_.size());
      std::ranges::transform(wide_, narrow_.begin(), [](std::uint32_t id) { return static_cast<std::uint16_t>(id); });
      put(std::as_bytes(std::span(narrow_)));
    }
    wide_.clear();
  }
  void put(std::span<const std::byte> bytes) {
    file_.write(written_bytes_, bytes);
    written_bytes_ += static_cast<std::int64_t>(bytes.size());
    if (written_bytes_ - synced_bytes_ < sync_period_bytes) return;
    file_.sync();
    file_.drop_cache(synced_bytes_, written_bytes_ - synced_bytes_);
    synced_bytes_ = written_bytes_;
  }

  File& file_;
  std::int64_t vocab_size_;
  DType dtype_;
  std::int64_t count_ = 0;
  IdHash hash_;
  std::vector<std::uint32_t> wide_;
  std::vector<std::uint16_t> narrow_;
  std::int64_t written_bytes_ = 0;
  std::int64_t synced_bytes_ = 0;
};

// Documents to ids, a part at a time.
class DocumentEncoder {
 public:
  DocumentEncoder(const Encoder& encoder, IdWriter& writer, DatasetCounts& counts)
      : encoder_(encoder), writer_(writer), counts_(counts) {}

  // The document's text so far; the caller appends to it, then calls encode_ready.
  std::string& text() { return text_; }

  void encode_ready(const std::filesystem::path& source) {
    std::string_view rest = text_;
    while (static_cast<std::int64_t>(rest.size()) > text_part_bytes) {
      std::size_t part = static_cast<std::size_t>(text_part_bytes);
      while ((static_cast<unsigned char>(rest[part]) & 0xC0U) == 0x80U) --part;
      const Cut cut = find_cut(rest.substr(0, part), encoder_);
      counts_.forced_cuts += cut.forced ? 1 : 0;
      encode(rest.substr(0, cut.left_bytes), source);
      counts_.text_bytes += static_cast<std::int64_t>(cut.right_begin - cut.left_bytes);
      rest.remove_prefix(cut.right_begin);
    }
    text_.erase(0, text_.size() - rest.size());
  }

  void end_document(const std::filesystem::path& source) {
    encode_ready(source);
    encode(text_, source);
    text_.clear();
    if (const std::optional<std::uint32_t> end = encoder_.end_token()) writer_.append(std::span(&*end, 1), source);
    ++counts_.documents;
  }

 private:
  void encode(std::string_view text, const std::filesystem::path& source) {
    writer_.append(encoder_.encode(text), source);
    counts_.text_bytes += static_cast<std::int64_t>(text.size());
  }

  const Encoder& encoder_;
  IdWriter& writer_;
  DatasetCounts& counts_;
  std::string text_;
};

// Bytes of the files before the current one, and how to tell the user.
struct Progress {
  const DatasetProgress& tell;
  std::int64_t total_bytes = 0;
  std::int64_t before_bytes = 0;

  void at(std::int64_t bytes) const {
    if (tell) tell(before_bytes + bytes, total_bytes);
  }
};

// Calls `use` with each block of ids, all of which are below vocab_size.
template <typename Use>
void for_each_block(const NpyReader& npy, std::int64_t vocab_size, const Progress& progress, const Use& use) {
  std::vector<std::uint32_t> ids(buffer_ids);
  for (std::int64_t begin = 0; begin < npy.count(); begin += static_cast<std::int64_t>(ids.size())) {
    ids.resize(std::min(ids.size(), static_cast<std::size_t>(npy.count() - begin)));
    npy.read(begin, ids);
    const auto beyond = std::ranges::find_if(ids, [&](std::uint32_t id) { return id >= vocab_size; });
    if (beyond != ids.end()) {
      throw UserError("{}: element {} is token id {}, but the model has a vocab_size of {}", npy.path().string(),
                      begin + (beyond - ids.begin()), *beyond, vocab_size);
    }
    use(std::span<const std::uint32_t>(ids));
    progress.at((begin + static_cast<std::int64_t>(ids.size())) * size_of(npy.header().dtype));
  }
}

void add_txt(const std::filesystem::path& path, DocumentEncoder& documents, DatasetCounts& counts,
             const Progress& progress) {
  TextFileReader reader(path);
  while (reader.append_next(documents.text())) {
    documents.encode_ready(path);
    progress.at(reader.bytes_read());
  }
  documents.end_document(path);
  counts.replaced += reader.replaced();
}

void add_jsonl(const std::filesystem::path& path, DocumentEncoder& documents, DatasetCounts& counts,
               const Progress& progress, std::int64_t line_limit_bytes) {
  JsonlReader reader(path, line_limit_bytes);
  const std::int64_t before = counts.documents;
  while (reader.next(documents.text())) {
    documents.end_document(path);
    progress.at(reader.bytes_read());
  }
  counts.replaced += reader.replaced();
  if (counts.documents == before) throw UserError("{} has no documents", path.string());
}

std::string name_of(std::span<const std::filesystem::path> files) {
  if (files.size() == 1) return files[0].string();
  return fmt::format("{} and {} more {}", files[0].string(), files.size() - 1, files.size() == 2 ? "file" : "files");
}

}  // namespace

std::string data_ending_of(const std::filesystem::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending;
}

std::int64_t check_data_files(std::span<const std::filesystem::path> files) {
  if (files.empty()) throw UserError("no data files were given");
  std::int64_t total_bytes = 0;
  for (const std::filesystem::path& path : files) {
    const std::string ending = data_ending_of(path);
    if (ending != ".txt" && ending != ".jsonl" && ending != ".npy") {
      throw UserError("{}: data files end in .txt, .jsonl or .npy", path.string());
    }
    const std::int64_t bytes = File::open_to_read(path).size();
    if (bytes == 0) throw UserError("{} is empty; give a file with text or token ids", path.string());
    total_bytes += bytes;
  }
  return total_bytes;
}

TokenStore TokenStore::build(std::span<const std::filesystem::path> files, const Encoder& encoder,
                             std::int64_t vocab_size, const std::filesystem::path& path,
                             const DatasetProgress& progress, std::int64_t line_limit_bytes) {
  Progress shown{.tell = progress, .total_bytes = check_data_files(files)};
  if (files.size() == 1 && data_ending_of(files[0]) == ".npy") return in_place(files[0], vocab_size, progress);
  TokenStore store;
  store.name_ = name_of(files);
  store.file_ = File::open_to_write(path);
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) throw DeviceError("cannot remove the name of {}: {}", path.string(), error.message());
  IdWriter writer(store.file_, vocab_size);
  DocumentEncoder documents(encoder, writer, store.counts_);
  for (const std::filesystem::path& file : files) {
    const std::string ending = data_ending_of(file);
    if (ending == ".txt") add_txt(file, documents, store.counts_, shown);
    if (ending == ".jsonl") add_jsonl(file, documents, store.counts_, shown, line_limit_bytes);
    if (ending == ".npy") {
      const NpyReader npy(file);
      for_each_block(npy, vocab_size, shown, [&](std::span<const std::uint32_t> ids) { writer.append(ids, file); });
    }
    shown.before_bytes += File::open_to_read(file).size();
  }
  writer.finish();
  store.dtype_ = writer.dtype();
  store.count_ = writer.count();
  store.hash_ = writer.hash();
  return store;
}

TokenStore TokenStore::in_place(const std::filesystem::path& path, std::int64_t vocab_size,
                                const DatasetProgress& progress) {
  TokenStore store;
  store.name_ = path.string();
  store.file_ = File::open_to_read(path);
  const NpyReader npy(path);
  if (npy.count() == 0) throw UserError("{} is empty; give a file with token ids", path.string());
  IdHash hash;
  for_each_block(npy, vocab_size, {.tell = progress, .total_bytes = store.file_.size()},
                 [&](std::span<const std::uint32_t> ids) { hash.add(ids); });
  store.file_.drop_cache(0, 0);
  store.dtype_ = npy.header().dtype;
  store.data_offset_ = npy.header().data_offset;
  store.count_ = npy.count();
  store.hash_ = hash.value();
  return store;
}

void TokenStore::read(std::int64_t begin, std::span<std::int32_t> into) const {
  SPILLWAY_CHECK(begin >= 0 && begin <= count_ && static_cast<std::int64_t>(into.size()) <= count_ - begin,
                 "{} ids from {} of {}", into.size(), begin, count_);
  std::array<std::uint32_t, 4096> ids;
  while (!into.empty()) {
    const std::size_t part = std::min(into.size(), ids.size());
    read_ids(file_, data_offset_, dtype_, begin, std::span(ids).first(part));
    std::transform(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(part), into.begin(),
                   [](std::uint32_t id) { return static_cast<std::int32_t>(id); });
    into = into.subspan(part);
    begin += static_cast<std::int64_t>(part);
  }
}

}  // namespace spillway
