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
    const std::vector<std::string> texts = rows_[i].is_list() ? given.texts : std::vector<std::string>{given.text};
    set_option(rows_[i], texts, rows_[i].flag());
  }
}

void join_switch_values(std::vector<std::string>& arguments, const CLI::App& verb) {
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
    const std::string& value = arguments[i + 1];
    if (value != "true" && value != "false") continue;
    const CLI::Option* flag = arguments[i].starts_with("--") ? verb.get_option_no_throw(arguments[i]) : nullptr;
    if (flag == nullptr || flag->get_expected_max() != 0) continue;
    arguments[i] += '=' + value;
    arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

}  // namespace spillway
