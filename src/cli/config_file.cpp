#include "cli/config_file.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <set>
#include <sstream>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/atomic_file.h"
#include "formats/file.h"
#include "formats/utf8.h"

namespace spillway {
namespace {

constexpr std::int64_t config_limit_bytes = mib;

const Option& row_of(std::string_view key, std::string_view file, std::span<const Option> rows) {
  std::vector<std::string> keys;
  for (const Option& row : rows) {
    if (row.key == key) return row;
    if (!row.hidden()) keys.emplace_back(row.key);
  }
  const std::string close = nearest(key, keys);
  if (close.empty()) throw UserError("{}: unknown key {}; `spillway train --help` lists the keys", file, key);
  throw UserError("{}: unknown key {}; did you mean {}?", file, key, close);
}

std::string scalar_of(const YAML::Node& node, std::string_view where) {
  if (!node.IsScalar()) throw UserError("{} is not a plain value; write it on one line", where);
  // yaml-cpp makes single bytes of some escapes.
  if (!is_utf8(node.Scalar())) throw UserError("{} has an escape that is not supported; write the character", where);
  return node.Scalar();
}

void set_from_node(const Option& row, const YAML::Node& node, std::string_view where) {
  if (node.IsNull()) return;
  std::vector<std::string> texts;
  if (node.IsSequence()) {
    if (!row.is_list()) throw UserError("{} is a list; give it one value", where);
    for (const YAML::Node& item : node) texts.push_back(scalar_of(item, where));
  } else {
    texts.push_back(scalar_of(node, where));
  }
  set_option(row, texts, where);
}

// Where a document begins and whether anything is in it.
class DocumentLook : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { begin = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override { empty = false; }
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override { empty = false; }
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    empty = false;
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    empty = false;
  }
  void OnMapEnd() override {}

  YAML::Mark begin = YAML::Mark::null_mark();
  bool empty = true;
};

// YAML::Load looks at the first document alone and takes a text that begins with a comma for an empty one; asked for
// the next, yaml-cpp stays where it is forever.
void check_one_document(const std::string& text, std::string_view file) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  for (int last = -1;;) {
    DocumentLook document;
    if (!parser.HandleNextDocument(document)) return;
    const int line = document.begin.line + 1;
    if (document.begin.pos <= last) throw UserError("{}: not YAML in line {}", file, line);
    if (last >= 0 && !document.empty) {
      throw UserError("{}: a second YAML document begins in line {}; leave one", file, line);
    }
    last = document.begin.pos;
  }
}

YAML::Node parse_yaml(const std::string& text, std::string_view file) {
  try {
    check_one_document(text, file);
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    if (error.mark.is_null()) throw UserError("{}: not YAML ({})", file, error.msg);
    throw UserError("{}: not YAML in line {} ({})", file, error.mark.line + 1, error.msg);
  }
}

void set_all(const YAML::Node& root, std::string_view file, std::span<const Option> rows) {
  std::set<std::string> seen;
  for (const auto& entry : root) {
    const std::string key = scalar_of(entry.first, fmt::format("{}: a key", file));
    if (!seen.insert(key).second) throw UserError("{}: key {} is there twice; remove one", file, key);
    set_from_node(row_of(key, file, rows), entry.second, fmt::format("{}: {}", file, key));
  }
}

// By hand, since yaml-cpp's emitter writes control characters in a form that its parser refuses.
std::string yaml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02X}", byte);
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string value_text(const Option& row) {
  const std::vector<std::string> texts = texts_of(row);
  if (std::holds_alternative<std::string*>(row.value)) return yaml_string(texts.front());
  if (!row.is_list()) return texts.front();
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + yaml_string(text);
  return '[' + list + ']';
}

}  // namespace

void parse_config(std::string_view text, std::string_view file, std::span<const Option> rows) {
  if (!is_utf8(text)) throw UserError("{}: not UTF-8; save it in that encoding", file);
  // yaml-cpp takes a NUL for an escape character.
  if (text.find('\0') != text.npos) throw UserError("{}: has a NUL character; it must be text", file);
  const YAML::Node root = parse_yaml(std::string(text), file);
  if (root.IsNull()) return;
  if (!root.IsMap()) throw UserError("{}: not a YAML mapping; write lines of `key: value`", file);
  try {
    set_all(root, file, rows);
  } catch (const YAML::Exception& error) {
    throw UserError("{}: not usable YAML ({})", file, error.msg);
  }
}

void load_config(const std::filesystem::path& path, std::span<const Option> rows) {
  parse_config(read_small_file(path, config_limit_bytes), path.string(), rows);
}

std::string print_config(std::span<const Option> rows, std::span<const Option> defaults) {
  SPILLWAY_CHECK(rows.size() == defaults.size(), "{} rows, {} defaults", rows.size(), defaults.size());
  std::string text;
  std::string_view group;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Option& row = rows[i];
    if (row.hidden() && texts_of(row) == texts_of(defaults[i])) continue;
    if (row.group != group) text += fmt::format("{}# {}\n", text.empty() ? "" : "\n", row.group);
    group = row.group;
    text += fmt::format("{}: {}\n", row.key, value_text(row));
  }
  return text;
}

void write_run_config(const TrainOptions& options) {
  TrainOptions values = options;
  TrainOptions defaults;
  write_file_atomically(std::filesystem::path(options.output_dir) / run_config_name,
                        print_config(options_of(values), options_of(defaults)));
}

}  // namespace spillway
