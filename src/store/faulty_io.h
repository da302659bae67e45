// Engines for tests, around another one: a failing disk and a slow one. They are above what tries failed reads again.
#pragma once

#include <cstdint>
#include <memory>

#include "store/io.h"

namespace spillway {

struct IoFaults {
  std::int64_t fail_at = -1;  // the request with this number, from 0, fails…
  int error = 0;              // …with this errno, without being carried out
  bool fail_after = false;    // and so do all later ones
  double short_share = 0.0;   // of requests that end early without an error, as at the end of a file
  double delay_share = 0.0;   // of completions that are handed out one wait later: another order
  std::uint64_t seed = 1;
};

std::unique_ptr<IoEngine> make_faulty_engine(std::unique_ptr<IoEngine> inner, const IoFaults& faults);

// Completions come no faster than this rate.
std::unique_ptr<IoEngine> make_throttled_engine(std::unique_ptr<IoEngine> inner, std::int64_t bytes_per_second);

}  // namespace spillway
