// Options as text: what set_option reads and texts_of writes, and the words of the errors.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "base/bytes.h"
#include "base/error.h"
#include "session/options.h"

namespace spillway {
namespace {

template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// "10", "1e3" or "10.0" where an integer is wanted: people write steps that way.
bool parse_integer(std::string_view text, std::int64_t& number) {
  if (parse_number(text, number)) return true;
  double real = 0;
  constexpr double exact = 9007199254740992.0;  // 2^53
  if (!parse_number(text, real) || !(std::fabs(real) <= exact) || real != std::floor(real)) return false;
  number = static_cast<std::int64_t>(real);
  return true;
}

std::string shortest(double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  return {text, end};
}

std::string words_of(const OptionLimits& limits) {
  std::vector<std::string> words;
  if (std::isfinite(limits.least))
    words.push_back((limits.least_open ? "above " : "at least ") + shortest(limits.least));
  if (std::isfinite(limits.most)) words.push_back((limits.most_open ? "below " : "at most ") + shortest(limits.most));
  return fmt::format("{}", fmt::join(words, " and "));
}

void check_limits(double number, std::string_view text, const OptionLimits& limits, std::string_view where) {
  const bool low = limits.least_open ? number > limits.least : number >= limits.least;
  const bool high = limits.most_open ? number < limits.most : number <= limits.most;
  if (!std::isfinite(number)) throw UserError("{} is {}; it must be a finite number", where, text);
  if (!low || !high) throw UserError("{} is {}; it must be {}", where, text, words_of(limits));
}

void refuse_nul(std::string_view text, std::string_view where) {
  if (text.find('\0') != text.npos) throw UserError("{} has a NUL character; remove it", where);
}

struct Setter {
  const Option& option;
  std::span<const std::string> texts;
  std::string_view where;

  const std::string& text() const {
    if (texts.size() != 1) throw UserError("{} has {} values; give it one", where, texts.size());
    return texts.front();
  }

  void operator()(std::int64_t* value) const {
    std::int64_t number = 0;
    if (option.unit == OptionUnit::bytes) {
      number = text() == "auto" ? 0 : parse_bytes(text(), where);
    } else if (!parse_integer(text(), number)) {
      throw UserError("{} is '{}', which is not an integer; give a whole number", where, text());
    }
    check_limits(static_cast<double>(number), text(), option.limits, where);
    *value = number;
  }

  void operator()(double* value) const {
    double number = 0;
    if (!parse_number(text(), number))
      throw UserError("{} is '{}', which is not a number; give one like 0.1 or 3e-4", where, text());
    check_limits(number, text(), option.limits, where);
    *value = number;
  }

  void operator()(bool* value) const {
    constexpr std::array words = {"true", "True", "TRUE", "false", "False", "FALSE"};  // of YAML's core schema
    const auto word = std::find(words.begin(), words.end(), text());
    if (word == words.end())
      throw UserError("{} is '{}', which is neither true nor false; give one of them", where, text());
    *value = word - words.begin() < 3;
  }

  void operator()(std::string* value) const {
    const auto& choices = option.limits.choices;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), text()) == choices.end())
      throw UserError("{} is '{}'; give one of {}", where, text(), fmt::join(choices, ", "));
    refuse_nul(text(), where);
    *value = text();
  }

  void operator()(std::vector<std::string>* value) const {
    if (std::find(texts.begin(), texts.end(), std::string()) != texts.end())
      throw UserError("{} has an empty item; remove it", where);
    for (const std::string& item : texts) refuse_nul(item, where);
    value->assign(texts.begin(), texts.end());
  }
};

std::string bytes_text(std::int64_t bytes) {
  if (bytes == 0) return "auto";
  return bytes % mib == 0 ? fmt::format("{}MiB", bytes / mib) : std::to_string(bytes);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

// Small letters and one separator, without the dashes in front.
std::string folded(std::string_view word) {
  std::string result(word.substr(std::min(word.find_first_not_of('-'), word.size())));
  for (char& c : result) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::string Option::flag() const {
  std::string flag = "--" + std::string(key);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

void set_option(const Option& option, std::span<const std::string> texts, std::string_view where) {
  std::visit(Setter{option, texts, where}, option.value);
}

std::vector<std::string> texts_of(const Option& option) {
  return std::visit(
      [&](const auto* value) -> std::vector<std::string> {
        using Value = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return *value;
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return {*value};
        } else if constexpr (std::is_same_v<Value, bool>) {
          return {*value ? "true" : "false"};
        } else if constexpr (std::is_same_v<Value, double>) {
          return {shortest(*value)};
        } else {
          return {option.unit == OptionUnit::bytes ? bytes_text(*value) : std::to_string(*value)};
        }
      },
      option.value);
}

std::string nearest(std::string_view word, std::span<const std::string> words) {
  const std::string wanted = folded(word);
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 2);
  for (const std::string& candidate : words) {
    const std::size_t distance = edit_distance(wanted, folded(candidate));
    if (distance < best_distance || (distance == best_distance && best.empty())) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (!best.empty() && best_distance <= 2) return best;
  // A part of a name: batch_size, epochs.
  const auto holds = [&](const std::string& candidate) {
    return wanted.size() >= 4 && folded(candidate).find(wanted) != std::string::npos;
  };
  const auto part = std::find_if(words.begin(), words.end(), holds);
  return part != words.end() ? *part : best;
}

}  // namespace spillway
