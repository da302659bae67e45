#include "session/run_choices.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"
#include "device/memory_info.h"
#include "ops/matmul/matmul.h"

namespace spillway {
namespace {

// By which oneDNN and cuBLAS are told from outside to compute otherwise: CUBLAS_* has emulation of f32 by bf16 and its
// settings, NVIDIA_TF32_OVERRIDE lets f32 products drop bits of their factors.
bool changes_numbers(std::string_view name) {
  return name.starts_with("DNNL_") || name.starts_with("ONEDNN_") || name.starts_with("CUBLAS_") ||
         name == "NVIDIA_TF32_OVERRIDE";
}

// Unsets variables that would change numbers behind our back, naming them in `notes`. Before cuBLAS is loaded, which
// reads its own when it is.
void clear_numeric_environment(std::vector<std::string>& notes) {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (changes_numbers(name)) names.emplace_back(name);
  }
  for (const std::string& name : names) {
    unsetenv(name.c_str());
    notes.push_back(fmt::format("{} is set and would change numbers; it is ignored", name));
  }
}

}  // namespace

std::int64_t budget_within(std::int64_t free_bytes) {
  return free_bytes - std::max(free_bytes / 10, std::min(256 * mib, free_bytes / 2));
}

RunChoices choose(const std::string& dtype, std::int64_t threads, std::int64_t memory_bytes,
                  const std::vector<std::string>& spill_dir, const std::filesystem::path& default_spill_dir,
                  std::vector<std::string>& notes) {
  bound_allocator();
  clear_numeric_environment(notes);
  RunChoices choices;
  if (dtype == "auto") {
    choices.dtype = matmul_has_bf16() ? DType::bf16 : DType::f32;
    notes.push_back(fmt::format("dtype auto is {} on this processor", name_of(choices.dtype)));
  } else {
    choices.dtype = dtype == "bf16" ? DType::bf16 : DType::f32;
  }
  choices.threads = static_cast<int>(threads > 0 ? threads : processor_info().cpus);
  choices.budget_bytes = memory_bytes;
  if (memory_bytes == 0) {
    choices.budget_bytes = budget_within(available_memory_bytes());
    notes.push_back(fmt::format("memory is {}, what is free less a margin", format_bytes(choices.budget_bytes)));
  }
  for (const std::string& dir : spill_dir) choices.spill_dirs.emplace_back(dir);
  if (choices.spill_dirs.empty()) choices.spill_dirs.push_back(default_spill_dir);
  return choices;
}

}  // namespace spillway
