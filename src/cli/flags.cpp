#include "cli/flags.h"

#include "base/error.h"

namespace spillway {
namespace {

std::string placeholder(const Option& row) {
  if (row.unit == OptionUnit::bytes) return "SIZE";
  if (!row.limits.choices.empty()) return "NAME";
  if (row.is_list()) return "PATH";
  return std::holds_alternative<std::string*>(row.value) ? "TEXT" : "NUMBER";
}

bool is_free_text(const Option& row) {
  return std::holds_alternative<std::string*>(row.value) && row.limits.choices.empty();
}

}  // namespace

Flags::Flags(CLI::App& app, std::vector<Option> rows) : rows_(std::move(rows)) {
  for (const Option& row : rows_) {
    Given& given = given_.emplace_back();
    given.flag = add(app, row, given);
    given.flag->group(row.hidden() ? std::string() : std::string(row.group));
  }
}

CLI::Option* Flags::add(CLI::App& app, const Option& row, Given& given) {
  const std::string help(row.help);
  if (row.is_bool()) {
    const std::string no = ",!--no-" + row.flag().substr(2);
    const bool on = texts_of(row).front() == "true";
    return app.add_flag(row.flag() + no, given.text, help + (on ? " [true]" : ""))
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  if (row.is_list()) return app.add_option(row.flag(), given.texts, help)->expected(1, -1)->type_name(placeholder(row));
  CLI::Option* flag = app.add_option(row.flag(), given.text, help)->type_name(placeholder(row));
  const std::string initial = texts_of(row).front();
  if (!initial.empty()) flag->default_str(initial);
  return flag->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

bool Flags::given(std::string_view key) const {
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].key == key) return given_[i].flag->count() > 0;
  SPILLWAY_CHECK(false, "no option {}", key);
}

void Flags::apply() const {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Given& given = given_[i];
    if (given.flag->count() == 0) continue;
    const Option& row = rows_[i];
    // `--trace=$file` with no file set asks for a trace all the same.
    if (is_free_text(row) && given.text.empty() && !row.may_be_empty)
      throw UserError("{} is empty; give it a value, or leave it out", row.flag());
    const std::vector<std::string> texts = row.is_list() ? given.texts : std::vector<std::string>{given.text};
    set_option(row, texts, row.flag());
  }
}

void spell_out_values(std::vector<std::string>& arguments, const CLI::App& verb) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool is_empty = arguments[i].ends_with('=');
    const std::string name = arguments[i].substr(0, arguments[i].size() - (is_empty ? 1 : 0));
    const CLI::Option* const flag = name.starts_with("--") ? verb.get_option_no_throw(name) : nullptr;
    if (flag == nullptr) continue;
    const bool is_switch = flag->get_expected_max() == 0;
    const auto next = arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    if (is_empty && !is_switch) {
      arguments[i] = name;
      arguments.insert(next, std::string());
    } else if (is_switch && !is_empty && next != arguments.end() && (*next == "true" || *next == "false")) {
      arguments[i] += '=' + *next;
      arguments.erase(next);
    }
  }
}

}  // namespace spillway
