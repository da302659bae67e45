#include "doctor/report.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "base/counted.h"
#include "base/error.h"

namespace spillway {
namespace {

std::string painted(Verdict verdict, bool color) {
  constexpr std::array<std::string_view, 3> colors{"\x1b[32m", "\x1b[33m", "\x1b[31m"};
  const std::string padded = fmt::format("{:<8}", name_of(verdict));
  return color ? fmt::format("{}{}\x1b[0m", colors[static_cast<std::size_t>(verdict)], padded) : padded;
}

}  // namespace

std::int64_t count(std::span<const Finding> findings, Verdict verdict) {
  return std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.verdict == verdict; });
}

std::string text_of(std::span<const Finding> findings, bool color) {
  std::string text;
  for (const Finding& f : findings) {
    text += fmt::format("{}  {}: {}\n", painted(f.verdict, color), f.check, f.what);
    if (!f.fix.empty()) text += fmt::format("{:10}-> {}\n", "", f.fix);
  }
  return text + fmt::format("\n{}, {}\n", counted(count(findings, Verdict::problem), "problem"),
                            counted(count(findings, Verdict::warning), "warning"));
}

std::string json_of(std::span<const Finding> findings) {
  nlohmann::ordered_json json = {{"problems", count(findings, Verdict::problem)},
                                 {"warnings", count(findings, Verdict::warning)},
                                 {"checks", nlohmann::ordered_json::array()}};
  for (const Finding& f : findings)
    json["checks"].push_back(
        {{"check", f.check}, {"verdict", std::string(name_of(f.verdict))}, {"what", f.what}, {"fix", f.fix}});
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

}  // namespace spillway
