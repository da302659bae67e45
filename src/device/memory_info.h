// What the operating system says of memory and of the processor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace spillway {

// Resident memory of this process, code and libraries included (VmRSS, VmHWM). Exact, unlike getrusage's, which counts
// the parent's before exec.
std::int64_t rss_bytes();
std::int64_t peak_rss_bytes();

// Makes the allocator give back what is freed, for a process that keeps to a budget: large blocks at once, and no heaps
// of single threads. Otherwise glibc keeps blocks of up to 32 MiB once one of that size was freed.
void bound_allocator();

// Whether a sanitizer is built in, whose own memory makes resident memory say nothing of the program's.
bool is_instrumented();

// What this process may still take without pushing anything out: the machine's MemAvailable, or what is left under the
// limits of its control group and that group's ancestors (v1 and v2), whichever is smaller. `root` is for tests: the
// directory that holds proc/ and sys/.
std::int64_t available_memory_bytes(const std::filesystem::path& root = "/");

// The first of these alone: what is free on the machine, limits of control groups aside.
std::int64_t machine_available_bytes(const std::filesystem::path& root = "/");

struct ProcessorInfo {
  std::string model;     // "AMD EPYC 9B14"
  std::string features;  // those that choose kernels, "avx2 fma avx512f … amx_bf16"
  int cpus = 1;          // that this process may run on
};
ProcessorInfo processor_info(const std::filesystem::path& root = "/");

}  // namespace spillway
