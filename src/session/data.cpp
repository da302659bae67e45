#include "session/data.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/bytes.h"
#include "base/error.h"
#include "device/memory_info.h"

namespace spillway {
namespace {

class TokenizerEncoder : public Encoder {
 public:
  TokenizerEncoder(const std::filesystem::path& model_dir, std::int64_t vocab_size)
      : tokenizer_(Tokenizer::load(model_dir)) {
    if (tokenizer_.end_token() && *tokenizer_.end_token() >= static_cast<std::uint64_t>(vocab_size)) {
      throw UserError("{}: the end token has id {}, beyond the vocabulary of {} in config.json", model_dir.string(),
                      *tokenizer_.end_token(), vocab_size);
    }
  }
  std::vector<std::uint32_t> encode(std::string_view text) const override { return tokenizer_.encode(text); }
  std::optional<std::uint32_t> end_token() const override { return tokenizer_.end_token(); }

 private:
  Tokenizer tokenizer_;
};

// Files of ids need no tokenizer.
class NoEncoder : public Encoder {
 public:
  std::vector<std::uint32_t> encode(std::string_view) const override { return {}; }
  std::optional<std::uint32_t> end_token() const override { return std::nullopt; }
};

// The tokenizer of the model, where a file holds text.
std::unique_ptr<Encoder> encoder_for(std::span<const std::filesystem::path> files,
                                     const std::filesystem::path& model_dir, std::int64_t vocab_size) {
  const bool ids_only = std::all_of(files.begin(), files.end(),
                                    [](const std::filesystem::path& path) { return data_ending_of(path) == ".npy"; });
  if (ids_only) return std::make_unique<NoEncoder>();
  return std::make_unique<TokenizerEncoder>(model_dir, vocab_size);
}

// Reading a line takes five times its bytes, and tokenising some space of its own.
std::int64_t line_limit_for(std::int64_t budget_bytes) {
  constexpr std::int64_t most = JsonlReader::default_line_limit_bytes;
  constexpr std::int64_t tokenising_bytes = 4 * mib;
  if (budget_bytes == 0 || is_instrumented()) return most;
  return std::clamp((budget_bytes - rss_bytes() - tokenising_bytes) / 5, mib, most);
}

std::filesystem::path scratch_file(const std::filesystem::path& dir) {
  static std::atomic<int> count{0};
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  return dir / fmt::format("tokens-{}-{}.spill", getpid(), count.fetch_add(1));
}

}  // namespace

TokenStore read_tokens(const std::vector<std::string>& files, const std::filesystem::path& model_dir,
                       std::int64_t vocab_size, const std::filesystem::path& scratch_dir,
                       std::vector<std::string>& notes, std::int64_t budget_bytes,
                       const std::function<void()>& between) {
  const std::vector<std::filesystem::path> paths(files.begin(), files.end());
  const std::unique_ptr<Encoder> encoder = encoder_for(paths, model_dir, vocab_size);
  const DatasetProgress progress = [&](std::int64_t, std::int64_t) {
    if (between) between();
  };
  TokenStore store =
      TokenStore::build(paths, *encoder, vocab_size, scratch_file(scratch_dir), progress, line_limit_for(budget_bytes));
  if (store.counts().replaced > 0) {
    notes.push_back(
        fmt::format("{} byte sequences of the data were not UTF-8 and became U+FFFD", store.counts().replaced));
  }
  if (store.counts().forced_cuts > 0) {
    notes.push_back(fmt::format("{} cuts of long documents fell inside words", store.counts().forced_cuts));
  }
  return store;
}

TokenEstimate estimate_tokens(const std::vector<std::string>& files, const std::filesystem::path& model_dir,
                              std::int64_t vocab_size) {
  const std::vector<std::filesystem::path> paths(files.begin(), files.end());
  return estimate_ids(paths, *encoder_for(paths, model_dir, vocab_size));
}

}  // namespace spillway
