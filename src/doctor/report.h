// The doctor's report as text for people and as JSON for programs.
#pragma once

#include <span>
#include <string>

#include "doctor/examine.h"

namespace spillway {

// A line each: verdict, check, what was found, and below it what to do; then how many problems and warnings.
std::string text_of(std::span<const Finding> findings, bool color);
// One object: problems, warnings, and checks as a list.
std::string json_of(std::span<const Finding> findings);

std::int64_t count(std::span<const Finding> findings, Verdict verdict);

}  // namespace spillway
