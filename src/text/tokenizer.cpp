#include "text/tokenizer.h"

#include <fmt/format.h>
#include <malloc.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_added.h"
#include "text/tokenizer_ends.h"
#include "text/tokenizer_fields.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace spillway {
namespace {

using nlohmann::json;

Bpe::Options options_of(const TokenizerFile& file, bool byte_level, const std::string& name) {
  const Fields model(file.model, name + ": model");
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges"});
  if (model.has("dropout") && model.value("dropout") != 0.0) model.refuse("dropout");
  for (const std::string key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.has(key) && !model.text(key).empty()) model.refuse("a " + key);
  }
  Bpe::Options options;
  options.byte_level = byte_level;
  options.byte_fallback = model.flag("byte_fallback", false);
  options.fuse_unknown = model.flag("fuse_unk", false);
  options.ignore_merges = model.flag("ignore_merges", false);
  if (model.has("unk_token")) {
    options.unknown = file.vocabulary.find(model.text("unk_token"));
    if (options.unknown == kNoToken) {
      throw UserError("{}: model.unk_token is \"{}\", which is not in model.vocab", name, model.text("unk_token"));
    }
  }
  return options;
}

void check_added_tokens(const TokenizerFile& file, const std::string& name) {
  for (std::size_t i = 0; i < file.added_tokens.size(); ++i) {
    const AddedToken& token = file.added_tokens[i];
    const TokenId in_vocabulary = file.vocabulary.find(token.content);
    if (in_vocabulary != kNoToken && in_vocabulary != token.id) {
      throw UserError("{}: added_tokens[{}] (\"{}\") has id {}, but model.vocab gives it {}", name, i, token.content,
                      token.id, in_vocabulary);
    }
    const auto text = file.vocabulary.text(token.id);
    if (text && *text != token.content) {
      throw UserError("{}: added_tokens[{}] (\"{}\") has id {}, which model.vocab gives to \"{}\"", name, i,
                      token.content, token.id, *text);
    }
  }
}

void check_added_tokens_once(const AddedTokens& added, const std::string& name) {
  for (const AddedToken& token : added.all()) {
    if (added.with_id(token.id) != &token || added.with_content(token.content) != &token) {
      throw UserError("{}: added_tokens holds \"{}\" (id {}) or its id twice", name, token.content, token.id);
    }
  }
}

// What the post-processor puts around a text.
struct Template {
  std::vector<TokenId> before, after;
};

void append_template_ids(const Fields& fields, const std::string& token, std::int64_t id_limit,
                         std::vector<TokenId>& ids) {
  const json& list = fields.object("special_tokens").object(token).value("ids");
  const auto good = [&](const json& id) {
    return id.is_number_unsigned() && id.get<std::uint64_t>() < static_cast<std::uint64_t>(id_limit);
  };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), good)) {
    throw UserError("{}.special_tokens[\"{}\"].ids must be an array of ids below {}", fields.where(), token, id_limit);
  }
  for (const json& id : list) ids.push_back(id.get<TokenId>());
}

void read_template(const Fields& fields, std::int64_t id_limit, Template& result) {
  fields.only({"type", "single", "pair", "special_tokens"});
  Template own;
  bool text_seen = false;
  for (const Fields& part : fields.objects("single")) {
    part.only({"SpecialToken", "Sequence"});
    if (part.has("Sequence")) {
      if (text_seen || part.object("Sequence").text("id") != "A") part.refuse("more than the sequence A once");
      text_seen = true;
    } else {
      append_template_ids(fields, part.object("SpecialToken").text("id"), id_limit, text_seen ? own.after : own.before);
    }
  }
  if (!text_seen) fields.refuse("a template without the sequence A");
  result.before.insert(result.before.begin(), own.before.begin(), own.before.end());
  result.after.insert(result.after.end(), own.after.begin(), own.after.end());
}

void read_post_processor(const Fields& fields, std::int64_t id_limit, int depth, Template& result) {
  const std::string& type = fields.text("type");
  if (type == "Sequence") {
    if (depth == kDeepestSequence) fields.refuse("a Sequence nested this deep");
    fields.only({"type", "processors"});
    for (const Fields& inner : fields.objects("processors")) read_post_processor(inner, id_limit, depth + 1, result);
  } else if (type == "TemplateProcessing") {
    read_template(fields, id_limit, result);
  } else if (type != "ByteLevel") {  // that one only moves offsets
    fields.refuse("the post-processor " + type);
  }
}

}  // namespace

class Tokenizer::Impl {
 public:
  static std::unique_ptr<Impl> make(TokenizerFile file, const std::string& name);

  void encode(std::string_view text, std::vector<TokenId>& out) const;
  std::optional<std::string_view> token_text(TokenId id) const;
  TokenId find(std::string_view token) const;
  // Feeds a token to the decoder. `special` ones are left out if asked for.
  void decode(TokenId id, bool skip_special_tokens, bool eager, TokenDecoder::State& state) const;

  Impl(Bpe bpe, PreTokenizer pretokenizer) : bpe_(std::move(bpe)), pretokenizer_(std::move(pretokenizer)) {}

  Bpe bpe_;
  PreTokenizer pretokenizer_;
  Normalizer normalizer_;
  AddedTokens added_;
  TokenDecoder decoder_;
  Template template_;
  std::int64_t vocab_size_ = 0;
  EndTokens ends_;

 private:
  std::unique_ptr<BpeScratch> borrow_scratch() const;
  void give_back(std::unique_ptr<BpeScratch> scratch) const;

  // One for each encode() that ever ran at the same time as others.
  mutable std::mutex scratch_mutex_;
  mutable std::vector<std::unique_ptr<BpeScratch>> scratch_;
};

std::unique_ptr<Tokenizer::Impl> Tokenizer::Impl::make(TokenizerFile file, const std::string& name) {
  PreTokenizer pretokenizer(file.pre_tokenizer, name + ": pre_tokenizer");
  const Bpe::Options options = options_of(file, pretokenizer.byte_level(), name);
  check_added_tokens(file, name);
  Bpe bpe(std::move(file.vocabulary), std::move(file.merges), options);
  auto impl = std::make_unique<Impl>(std::move(bpe), std::move(pretokenizer));
  impl->normalizer_ = Normalizer(file.normalizer, name + ": normalizer");
  impl->added_ = AddedTokens(std::move(file.added_tokens), impl->normalizer_);
  check_added_tokens_once(impl->added_, name);
  impl->decoder_ = TokenDecoder(file.decoder, name + ": decoder");
  impl->vocab_size_ = impl->bpe_.vocabulary().id_limit();
  for (const AddedToken& token : impl->added_.all()) {
    impl->vocab_size_ = std::max(impl->vocab_size_, std::int64_t{token.id} + 1);
  }
  if (!file.post_processor.is_null()) {
    read_post_processor(Fields(file.post_processor, name + ": post_processor"), impl->vocab_size_, 0, impl->template_);
  }
  return impl;
}

std::unique_ptr<BpeScratch> Tokenizer::Impl::borrow_scratch() const {
  const std::lock_guard lock(scratch_mutex_);
  if (scratch_.empty()) return std::make_unique<BpeScratch>();
  std::unique_ptr<BpeScratch> scratch = std::move(scratch_.back());
  scratch_.pop_back();
  return scratch;
}

void Tokenizer::Impl::give_back(std::unique_ptr<BpeScratch> scratch) const {
  scratch->shrink();
  const std::lock_guard lock(scratch_mutex_);
  scratch_.push_back(std::move(scratch));
}

void Tokenizer::Impl::encode(std::string_view text, std::vector<TokenId>& out) const {
  std::unique_ptr<BpeScratch> scratch = borrow_scratch();
  const PreTokenizer::Piece piece = [&](std::string_view part) { bpe_.encode(part, *scratch, out); };
  const auto encode_plain = [&](std::string_view raw, bool at_start) {
    const std::string owned = normalizer_.changes_nothing() ? std::string() : normalizer_.apply(raw);
    const std::string_view normal = normalizer_.changes_nothing() ? raw : std::string_view(owned);
    added_.split(normal, true, [&](std::size_t begin, std::size_t end, const AddedToken* token) {
      if (token != nullptr) {
        out.push_back(token->id);
      } else {
        pretokenizer_.split(normal.substr(begin, end - begin), at_start && begin == 0, piece);
      }
    });
  };
  added_.split(text, false, [&](std::size_t begin, std::size_t end, const AddedToken* token) {
    if (token != nullptr) {
      out.push_back(token->id);
    } else {
      encode_plain(text.substr(begin, end - begin), begin == 0);
    }
  });
  give_back(std::move(scratch));
}

std::optional<std::string_view> Tokenizer::Impl::token_text(TokenId id) const {
  const AddedToken* added = added_.with_id(id);
  if (added != nullptr) return added->content;
  return bpe_.vocabulary().text(id);
}

TokenId Tokenizer::Impl::find(std::string_view token) const {
  const AddedToken* added = added_.with_content(token);
  return added != nullptr ? added->id : bpe_.vocabulary().find(token);
}

void Tokenizer::Impl::decode(TokenId id, bool skip_special_tokens, bool eager, TokenDecoder::State& state) const {
  const AddedToken* added = added_.with_id(id);
  if (added != nullptr && added->special && skip_special_tokens) return;
  const std::optional<std::string_view> text = token_text(id);
  if (text) decoder_.push(*text, eager, state);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  const std::filesystem::path file = folder ? path / "tokenizer.json" : path;
  if (!std::filesystem::is_regular_file(file, error)) {
    throw UserError("{} is not there; give a folder that holds tokenizer.json, or the file itself", file.string());
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) throw UserError("{} cannot be read; check its permissions", file.string());
  Tokenizer tokenizer(Impl::make(read_tokenizer_json(in, file.string()), file.string()));
  const auto find = [&](std::string_view token) { return tokenizer.impl_->find(token); };
  tokenizer.impl_->ends_ = read_end_tokens(file.parent_path(), find, tokenizer.vocab_size());
  malloc_trim(0);  // reading leaves freed tables behind, and resident memory is promised
  return tokenizer;
}

Tokenizer Tokenizer::parse(std::string_view text, std::string_view name) {
  const std::string name_text(name);
  Tokenizer tokenizer(Impl::make(read_tokenizer_json(text, name_text), name_text));
  const auto find = [&](std::string_view token) { return tokenizer.impl_->find(token); };
  tokenizer.impl_->ends_ = well_known_end_tokens(find);
  return tokenizer;
}

Tokenizer Tokenizer::bytes() { return parse(bytes_tokenizer_json(), "the bytes tokenizer"); }

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::vector<TokenId> ids;
  if (add_special_tokens) ids = impl_->template_.before;
  if (is_valid_utf8(text)) {
    impl_->encode(text, ids);
  } else {
    impl_->encode(replace_bad_utf8(text), ids);
  }
  const std::vector<TokenId>& after = impl_->template_.after;
  if (add_special_tokens) ids.insert(ids.end(), after.begin(), after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  TokenDecoder::State state;
  for (const TokenId id : ids) impl_->decode(id, skip_special_tokens, false, state);
  impl_->decoder_.finish(state);
  return std::move(state.text);
}

std::int64_t Tokenizer::vocab_size() const { return impl_->vocab_size_; }
std::optional<TokenId> Tokenizer::begin_token() const { return impl_->ends_.begin; }
std::optional<TokenId> Tokenizer::end_token() const { return impl_->ends_.end; }
const std::vector<TokenId>& Tokenizer::stop_tokens() const { return impl_->ends_.stops; }

std::optional<std::string> Tokenizer::token_text(TokenId id) const {
  const std::optional<std::string_view> text = impl_->token_text(id);
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

std::string Tokenizer::describe() const {
  const Bpe& bpe = impl_->bpe_;
  const std::string_view kind = bpe.options().byte_level      ? "byte-level BPE"
                                : bpe.options().byte_fallback ? "BPE with byte fallback"
                                                              : "BPE";
  return fmt::format("{}, {} ids, {} merges, {} added tokens", kind, vocab_size(), bpe.merges().list().size(),
                     impl_->added_.all().size());
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string StreamDecoder::push(TokenId id) {
  tokenizer_->impl_->decode(id, skip_special_tokens_, true, state_);
  return std::exchange(state_.text, {});
}

std::string StreamDecoder::finish() {
  tokenizer_->impl_->decoder_.finish(state_);
  std::string text = std::move(state_.text);
  state_ = {};
  return text;
}

}  // namespace spillway
