#include "text/tokenizer_json.h"

#include <istream>
#include <set>
#include <utility>

#include "base/error.h"
#include "formats/json_object.h"
#include "text/tokenizer_fields.h"

namespace spillway {
namespace {

using nlohmann::json;

// Builds one value from events.
class JsonBuilder {
 public:
  bool active() const { return !open_.empty(); }
  json take() { return std::move(root_); }
  std::size_t depth() const { return open_.size(); }

  void key(std::string name) { key_ = std::move(name); }
  void scalar(json value) { place(std::move(value)); }
  void open(json empty) {
    if (open_.empty()) {
      root_ = std::move(empty);
      open_.push_back(&root_);
    } else {
      open_.push_back(place(std::move(empty)));
    }
  }
  // True when the whole value is complete.
  bool close() {
    open_.pop_back();
    return open_.empty();
  }

 private:
  json* place(json value) {
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  json root_;
  std::vector<json*> open_;  // children are only added to the innermost, so these stay valid
  std::string key_;
};

AddedToken added_token_of(const json& value, const std::string& where) {
  const Fields fields(value, where);
  fields.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token;
  token.id = fields.count("id", kLargestTokenId);
  token.content = fields.text("content");
  if (token.content.empty()) fields.refuse("an empty content");
  token.special = fields.flag("special", false);
  token.single_word = fields.flag("single_word", false);
  token.lstrip = fields.flag("lstrip", false);
  token.rstrip = fields.flag("rstrip", false);
  token.normalized = fields.flag("normalized", !token.special);
  return token;
}

// The receiver of the parser's events. Each container that is open is one of these places.
class TokenizerEvents : public nlohmann::json_sax<json> {
 public:
  TokenizerEvents(std::string name, TokenizerFile& file) : name_(std::move(name)), file_(file) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!builder_.active() && place() == Place::vocabulary) return vocabulary_entry(value);
    return scalar(value);
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return scalar(value); }
  bool string(string_t& value) override {
    if (!builder_.active() && place() == Place::merges) return merge_line(value);
    if (!builder_.active() && place() == Place::pair) return pair_half(value);
    return scalar(std::move(value));
  }
  bool binary(binary_t& /*value*/) override { return true; }  // JSON text has none
  bool key(string_t& value) override {
    if (builder_.active()) {
      builder_.key(std::move(value));
      return true;
    }
    const bool repeated = (place() == Place::top && !top_keys_.insert(value).second) ||
                          (place() == Place::model && !model_keys_.insert(value).second);
    if (repeated) fail("\"{}\" appears twice", value);
    key_ = std::move(value);
    return true;
  }
  bool start_object(std::size_t /*elements*/) override { return start(true); }
  bool start_array(std::size_t /*elements*/) override { return start(false); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::detail::exception& e) override {
    throw UserError("{} is not valid JSON at byte {} ({}); download or write it again", name_, position, text_of(e));
  }

  void finish();

 private:
  enum class Place { outside, top, model, vocabulary, merges, pair, added_tokens };
  static constexpr std::size_t kDeepest = 64;

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw UserError("{}: {}", name_, fmt::format(format, std::forward<Args>(args)...));
  }
  Place place() const { return places_.empty() ? Place::outside : places_.back(); }

  bool start(bool object);
  bool end();
  bool scalar(json value);
  void store(json value);
  bool vocabulary_entry(std::uint64_t id);
  bool merge_line(const std::string& line);
  bool pair_half(std::string& half);
  void merge(std::string_view left, std::string_view right);
  void check_model_type(const json& type) const;

  std::string name_;
  TokenizerFile& file_;
  std::vector<Place> places_;
  std::set<std::string> top_keys_, model_keys_;
  std::string key_;
  JsonBuilder builder_;
  std::vector<std::string> pair_;
  std::vector<std::pair<std::string, std::string>> early_merges_;  // where merges precede vocab
  std::string joined_;
  std::size_t merge_count_ = 0;
};

bool TokenizerEvents::start(bool object) {
  if (!builder_.active()) {
    const auto enter = [this](Place inner) {
      places_.push_back(inner);
      return true;
    };
    const Place here = place();
    if (here == Place::outside) {
      if (!object) fail("the file must hold an object, not an array");
      return enter(Place::top);
    }
    if (here == Place::top && key_ == "model" && object) {
      file_.model = json::object();
      return enter(Place::model);
    }
    if (here == Place::top && key_ == "added_tokens" && !object) return enter(Place::added_tokens);
    if (here == Place::model && key_ == "vocab") {
      if (!object) fail("model.vocab is an array, as Unigram models have it; only BPE models are supported");
      return enter(Place::vocabulary);
    }
    if (here == Place::model && key_ == "merges" && !object) return enter(Place::merges);
    if (here == Place::merges && !object) return enter(Place::pair);
    if (here == Place::merges || here == Place::pair) fail("model.merges[{}] must be a string or a pair", merge_count_);
    if (here == Place::vocabulary) fail("model.vocab[\"{}\"] must be an id", key_);
  }
  if (builder_.depth() == kDeepest) fail("\"{}\" is nested more than {} deep", key_, kDeepest);
  builder_.open(object ? json::object() : json::array());
  return true;
}

bool TokenizerEvents::end() {
  if (builder_.active()) {
    if (builder_.close()) store(builder_.take());
    return true;
  }
  const Place left = place();
  places_.pop_back();
  if (left == Place::vocabulary) file_.vocabulary.seal(name_ + ": model.vocab");
  if (left == Place::pair) {
    if (pair_.size() != 2) fail("model.merges[{}] has {} parts, not 2", merge_count_, pair_.size());
    merge(pair_[0], pair_[1]);
    pair_.clear();
  }
  return true;
}

bool TokenizerEvents::scalar(json value) {
  if (builder_.active()) {
    builder_.scalar(std::move(value));
    return true;
  }
  switch (place()) {
    case Place::vocabulary:
      fail("model.vocab[\"{}\"] must be a number from 0 to {}, not {}", key_, kLargestTokenId, value.dump());
    case Place::merges:
    case Place::pair: fail("model.merges[{}] must be a string or a pair of strings", merge_count_);
    case Place::outside: fail("the file must hold an object, not {}", value.type_name());
    default: store(std::move(value));
  }
  return true;
}

// A value of the sections that are kept as JSON, or of no use.
void TokenizerEvents::store(json value) {
  if (place() == Place::added_tokens) {
    const std::string where = fmt::format("{}: added_tokens[{}]", name_, file_.added_tokens.size());
    file_.added_tokens.push_back(added_token_of(value, where));
    return;
  }
  if (place() == Place::model) {
    if (key_ == "type") check_model_type(value);
    if (key_ == "vocab" || key_ == "merges") fail("model.{} has the wrong type ({})", key_, value.type_name());
    file_.model[key_] = std::move(value);
    return;
  }
  if (key_ == "normalizer") {
    file_.normalizer = std::move(value);
  } else if (key_ == "pre_tokenizer") {
    file_.pre_tokenizer = std::move(value);
  } else if (key_ == "post_processor") {
    file_.post_processor = std::move(value);
  } else if (key_ == "decoder") {
    file_.decoder = std::move(value);
  } else if (key_ == "version") {
    if (value != "1.0") fail("version {} is not supported; write the file with version \"1.0\"", value.dump());
  } else if (key_ == "added_tokens" && value.is_null()) {
    return;
  } else if (key_ == "model" || key_ == "added_tokens") {
    fail("{} has the wrong type ({})", key_, value.type_name());
  } else if (key_ != "truncation" && key_ != "padding") {
    // Those two are settings of a call, which transformers resets too.
    fail("the field \"{}\" is not supported; use another tokenizer", key_);
  }
}

void TokenizerEvents::check_model_type(const json& type) const {
  if (!type.is_string()) fail("model.type must be a string, not {}", type.type_name());
  if (type != "BPE") fail("a {} model is not supported; only BPE models are", type.get<std::string>());
}

bool TokenizerEvents::vocabulary_entry(std::uint64_t id) {
  if (id > kLargestTokenId) fail("model.vocab[\"{}\"] is id {}, more than {}", key_, id, kLargestTokenId);
  file_.vocabulary.add(key_, static_cast<TokenId>(id));
  return true;
}

bool TokenizerEvents::merge_line(const std::string& line) {
  if (line.starts_with("#version")) return true;
  const std::size_t space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
    fail("model.merges[{}] is \"{}\", not two tokens with a space between", merge_count_, line);
  }
  merge(std::string_view(line).substr(0, space), std::string_view(line).substr(space + 1));
  return true;
}

bool TokenizerEvents::pair_half(std::string& half) {
  if (pair_.size() == 2) fail("model.merges[{}] has more than 2 parts", merge_count_);
  pair_.push_back(std::move(half));
  return true;
}

void TokenizerEvents::merge(std::string_view left, std::string_view right) {
  if (!file_.vocabulary.sealed()) {
    early_merges_.emplace_back(left, right);
    ++merge_count_;
    return;
  }
  joined_.assign(left).append(right);
  const auto id_of = [&](std::string_view token) {
    const TokenId id = file_.vocabulary.find(token);
    if (id == kNoToken) fail("model.merges[{}] names \"{}\", which is not in model.vocab", merge_count_, token);
    return id;
  };
  const TokenId left_id = id_of(left);
  file_.merges.add({left_id, id_of(right), id_of(joined_)});
  ++merge_count_;
}

void TokenizerEvents::finish() {
  if (!top_keys_.contains("model")) fail("model is missing");
  if (!file_.vocabulary.sealed()) fail("model.vocab is missing");
  if (!model_keys_.contains("merges")) {
    fail("model.merges is missing; only BPE models are supported, and they have it");
  }
  merge_count_ = 0;
  for (const auto& [left, right] : early_merges_) merge(left, right);
  early_merges_.clear();
  file_.merges.seal();
}

}  // namespace

TokenizerFile read_tokenizer_json(std::istream& in, const std::string& name) {
  TokenizerFile file;
  TokenizerEvents events(name, file);
  json::sax_parse(in, &events);
  events.finish();
  return file;
}

TokenizerFile read_tokenizer_json(std::string_view text, const std::string& name) {
  TokenizerFile file;
  TokenizerEvents events(name, file);
  json::sax_parse(text.begin(), text.end(), &events);
  events.finish();
  return file;
}

}  // namespace spillway
