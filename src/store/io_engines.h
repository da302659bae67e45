// The two engines behind make_io_engine.
#pragma once

#include <memory>
#include <string>

#include "store/io.h"

namespace spillway {

// Null when the kernel refuses io_uring or lacks what is needed of it; `reason` then says why.
std::unique_ptr<IoEngine> make_uring_engine(const IoOptions& options, std::string& reason);

// A few threads of pread and pwrite. `reason`: why it is used, for describe().
std::unique_ptr<IoEngine> make_thread_engine(const IoOptions& options, const std::string& reason);

}  // namespace spillway
