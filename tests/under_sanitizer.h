// Under a sanitizer a run takes about eight times as long, and what it finds lies in kinds of cases more than in their
// number: there tests with many random cases, budgets or combinations take a part of them, and in release all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace spillway {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool under_sanitizer = true;
#else
inline constexpr bool under_sanitizer = false;
#endif

// Of so many random cases: under a sanitizer a fourth.
constexpr std::uint64_t cases(std::uint64_t all) { return under_sanitizer ? (all + 3) / 4 : all; }

// Of these: under a sanitizer the first so many.
template <typename T>
std::vector<T> cases(std::vector<T> all, std::size_t under_sanitizer_first) {
  if (under_sanitizer) all.erase(all.begin() + static_cast<std::ptrdiff_t>(under_sanitizer_first), all.end());
  return all;
}

// Of these: under a sanitizer the first half, at least one.
template <typename T>
std::vector<T> cases(std::vector<T> all) {
  const std::size_t half = (all.size() + 1) / 2;
  return cases(std::move(all), half);
}

}  // namespace spillway
