#include "text/token_estimate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/jsonl.h"
#include "formats/npy.h"
#include "formats/text_file.h"
#include "text/dataset_cut.h"

namespace spillway {
namespace {

// The ids of what was read of a text, in the parts that build encodes.
class Sample {
 public:
  explicit Sample(const Encoder& encoder) : encoder_(encoder) {}

  std::int64_t ids() const { return ids_; }

  void add(std::string_view text) {
    while (std::ssize(text) > text_part_bytes) {
      auto part = static_cast<std::size_t>(text_part_bytes);
      while ((static_cast<unsigned char>(text[part]) & 0xC0U) == 0x80U) --part;
      const Cut cut = find_cut(text.substr(0, part), encoder_);
      encode(text.substr(0, cut.left_bytes));
      text.remove_prefix(cut.right_begin);
    }
    encode(text);
  }
  void end_document() { ids_ += encoder_.end_token() ? 1 : 0; }

 private:
  void encode(std::string_view text) { ids_ += static_cast<std::int64_t>(encoder_.encode(text).size()); }

  const Encoder& encoder_;
  std::int64_t ids_ = 0;
};

// Adds what the first `sample_bytes` of a text hold, or a little more; the bytes that this is of.
std::int64_t add_txt(const std::filesystem::path& path, std::int64_t file_bytes, std::int64_t sample_bytes,
                     Sample& sample) {
  TextFileReader reader(path);
  std::string text;
  while (reader.bytes_read() < std::min(sample_bytes, file_bytes)) {
    if (!reader.append_next(text)) break;
  }
  sample.add(text);
  if (reader.bytes_read() >= file_bytes) sample.end_document();
  return reader.bytes_read();
}

// Lines, until the file's next block has to be read and the bytes so far are enough. They are those bytes, but for the
// beginning of one line.
std::int64_t add_jsonl(const std::filesystem::path& path, std::int64_t sample_bytes, Sample& sample) {
  JsonlReader reader(path);
  std::int64_t read_bytes = 0;
  std::string text;
  while (reader.next(text)) {
    if (read_bytes >= sample_bytes && reader.bytes_read() > read_bytes) return read_bytes;
    read_bytes = reader.bytes_read();
    sample.add(text);
    sample.end_document();
  }
  if (read_bytes == 0) throw UserError("{} has no documents", path.string());
  return read_bytes;
}

}  // namespace

TokenEstimate estimate_ids(std::span<const std::filesystem::path> files, const Encoder& encoder,
                           std::int64_t sample_bytes) {
  check_data_files(files);
  TokenEstimate estimate;
  std::vector<std::filesystem::path> texts;
  for (const std::filesystem::path& path : files) {
    if (data_ending_of(path) == ".npy") {
      estimate.ids += NpyReader(path).count();
    } else {
      texts.push_back(path);
    }
  }
  std::int64_t text_bytes = 0;
  std::int64_t known_bytes = 0;  // of texts of which a part was read, their lengths
  std::int64_t read_bytes = 0;
  double known_ids = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::int64_t file_bytes = File::open_to_read(texts[i]).size();
    text_bytes += file_bytes;
    if (read_bytes >= sample_bytes) continue;
    Sample sample(encoder);
    const std::int64_t share = divide_up(sample_bytes - read_bytes, static_cast<std::int64_t>(texts.size() - i));
    const std::int64_t read = data_ending_of(texts[i]) == ".txt" ? add_txt(texts[i], file_bytes, share, sample)
                                                                 : add_jsonl(texts[i], share, sample);
    known_ids += static_cast<double>(sample.ids()) * static_cast<double>(file_bytes) / static_cast<double>(read);
    known_bytes += file_bytes;
    read_bytes += read;
  }
  if (texts.empty()) return estimate;
  estimate.exact = read_bytes == text_bytes;
  estimate.ids += std::llround(known_ids * static_cast<double>(text_bytes) / static_cast<double>(known_bytes));
  return estimate;
}

}  // namespace spillway
