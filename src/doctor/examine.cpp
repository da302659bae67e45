#include "doctor/examine.h"

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway {
namespace {

constexpr std::int64_t least_memory_bytes = 256 * mib;
constexpr std::int64_t little_memory_bytes = gib;
constexpr std::int64_t least_open_files = 64;
constexpr std::int64_t few_open_files = 256;
constexpr std::int64_t few_mappings = 65530;  // the kernel's default
constexpr std::int64_t year_2024_seconds = 1704067200;
constexpr std::int64_t year_2100_seconds = 4102444800;
constexpr double slow_clock_seconds = 1e-6;

class Examination {
 public:
  explicit Examination(const MachineFacts& facts) : facts_(facts) {}

  std::vector<Finding> findings() {
    processor();
    memory();
    limits();
    engine();
    clock();
    accelerator();
    numerics();
    rates();
    return std::move(findings_);
  }

 private:
  void say(Verdict verdict, std::string check, std::string what, std::string fix = {}) {
    findings_.push_back({verdict, std::move(check), std::move(what), std::move(fix)});
  }

  bool has(const char* feature) const {
    return (' ' + facts_.processor.features + ' ').find(fmt::format(" {} ", feature)) != std::string::npos;
  }

  void processor() {
    const ProcessorInfo& p = facts_.processor;
    const std::string what =
        fmt::format("{}, {} processors, {}", p.model, p.cpus, p.features.empty() ? "no vector features" : p.features);
    if (!has("avx2") || !has("fma") || !has("f16c")) {
      say(Verdict::warning, "processor", what + "; without AVX2 computing takes several times as long",
          "use a processor from 2013 or later; in a virtual machine pass the host's features on");
    } else {
      say(Verdict::ok, "processor", what);
    }
    if (facts_.processor_quota > 0 && facts_.processor_quota < p.cpus - 0.01)
      say(Verdict::warning, "processor quota",
          fmt::format("the container may use {:.1f} processors' time of the {} it sees", facts_.processor_quota,
                      p.cpus),
          fmt::format("give --threads {}, or a larger quota", std::max(1, static_cast<int>(facts_.processor_quota))));
  }

  void memory() {
    const std::int64_t free = facts_.available_bytes;
    std::string what = fmt::format("{} free of {}", format_bytes(free), format_bytes(facts_.memory_bytes));
    const bool limited = free < facts_.unlimited_bytes - 16 * mib;
    if (limited) what += ", by the limit of a container or control group";
    const std::string fix = limited ? "raise the memory limit of the container" : "end what else uses memory";
    if (free < least_memory_bytes) {
      say(Verdict::problem, "memory", what + "; only toy models fit", fix);
    } else if (free < little_memory_bytes) {
      say(Verdict::warning, "memory", what + "; more makes runs faster", fix);
    } else {
      say(Verdict::ok, "memory", what);
    }
    if (facts_.huge_pages == "never")
      say(Verdict::warning, "huge pages", "the kernel gives none, which costs some percent of speed",
          "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root");
    if (facts_.most_mappings > 0 && facts_.most_mappings < few_mappings)
      say(Verdict::warning, "memory mappings",
          fmt::format("vm.max_map_count is {}, which limits how many pages a run may have", facts_.most_mappings),
          fmt::format("sysctl -w vm.max_map_count={}, as root", few_mappings));
    if (facts_.address_space_bytes >= 0)
      say(Verdict::problem, "address space",
          fmt::format("limited to {}; a run reserves many times its memory", format_bytes(facts_.address_space_bytes)),
          "ulimit -v unlimited");
  }

  void limits() {
    const std::int64_t files = facts_.most_open_files;
    const std::string what = fmt::format("{} may be open", files);
    const std::string fix = facts_.most_open_files_allowed > files
                                ? fmt::format("ulimit -n {}", facts_.most_open_files_allowed)
                                : "raise the limit in /etc/security/limits.conf or in the service's LimitNOFILE";
    if (files < least_open_files) {
      say(Verdict::problem, "open files", what + "; a model of many files cannot be read", fix);
    } else if (files < few_open_files) {
      say(Verdict::warning, "open files", what, fix);
    } else {
      say(Verdict::ok, "open files", what);
    }
    if (facts_.most_file_bytes < 0) return;
    say(facts_.most_file_bytes < gib ? Verdict::problem : Verdict::warning, "file size",
        fmt::format("limited to {}; slot files take the state of a model", format_bytes(facts_.most_file_bytes)),
        "ulimit -f unlimited");
  }

  void engine() {
    if (facts_.io_engine.starts_with("io_uring")) {
      say(Verdict::ok, "io_uring", facts_.io_engine);
    } else {
      say(Verdict::warning, "io_uring", facts_.io_engine,
          "allow io_uring: sysctl kernel.io_uring_disabled=0, or in a container a seccomp profile that lets it "
          "through");
    }
  }

  void clock() {
    const std::int64_t wall = facts_.wall_seconds;
    if (wall < year_2024_seconds || wall > year_2100_seconds) {
      say(Verdict::warning, "clock", fmt::format("the date is wrong: {} seconds since 1970", wall),
          "set the clock, as with `timedatectl set-ntp true`");
    } else if (!facts_.clock_goes_on) {
      say(Verdict::problem, "clock", "the monotonic clock went back, so no time that is reported can be trusted",
          "choose another clock source of the kernel, or report it to whoever runs the virtual machine");
    } else if (facts_.clock_read_seconds > slow_clock_seconds) {
      say(Verdict::warning, "clock",
          fmt::format("reading it takes {:.1f} us (clock source {}), which slows the recording of events",
                      1e6 * facts_.clock_read_seconds, facts_.clock_source),
          "choose tsc in /sys/devices/system/clocksource/clocksource0/current_clocksource");
    } else {
      say(Verdict::ok, "clock",
          fmt::format("{}, {:.0f} ns to read", facts_.clock_source.empty() ? "monotonic" : facts_.clock_source,
                      1e9 * facts_.clock_read_seconds));
    }
  }

  void accelerator() {
    if (facts_.accelerators.empty()) {
      say(Verdict::ok, "accelerator", "none found; runs compute on the processor");
    } else {
      say(Verdict::ok, "accelerator",
          fmt::format("{} is there; runs compute on the processor", facts_.accelerators.front()));
    }
  }

  void numerics() {
    if (facts_.numeric_faults.empty()) {
      say(Verdict::ok, "numbers", "matrix products and AdamW agree with their references to the bit");
    }
    for (const std::string& fault : facts_.numeric_faults)
      say(Verdict::problem, "numbers", fault,
          "do not train on this machine: check its memory and cooling, then report it if it stays");
  }

  void rate(const std::string& check, double is, double usual, const std::string& what, const std::string& fix) {
    if (usual > 0 && is < tolerated_share * usual) {
      say(Verdict::warning, check, fmt::format("{}; such hardware usually reaches {:.0f}", what, usual / 1e9), fix);
    } else {
      say(Verdict::ok, check, what);
    }
  }

  void rates() {
    const std::string busy = "see what else runs (top), and whether the processor is throttled";
    if (!facts_.rates) return;
    const MachineRates& r = *facts_.rates;
    const auto threads = static_cast<double>(r.threads);
    const double f32 = r.f32_flops_per_second;
    rate("computing in f32", f32, threads * usual_flops_per_thread(facts_.processor, false),
         fmt::format("{:.0f} GFLOP/s on {} threads", f32 / 1e9, r.threads), busy);
    if (facts_.bf16_products) {
      const double bf16 = r.bf16_flops_per_second;
      rate("computing in bf16", bf16, threads * usual_flops_per_thread(facts_.processor, true),
           fmt::format("{:.0f} GFLOP/s on {} threads", bf16 / 1e9, r.threads), busy);
    }
    rate("memory bandwidth", r.memory_bandwidth(), usual_memory_bytes_per_second(r.threads),
         fmt::format("{:.0f} GB/s on {} threads", r.memory_bandwidth() / 1e9, r.threads), busy);
  }

  const MachineFacts& facts_;
  std::vector<Finding> findings_;
};

}  // namespace

std::string_view name_of(Verdict verdict) {
  constexpr std::array<std::string_view, 3> names{"ok", "warning", "problem"};
  return names[static_cast<std::size_t>(verdict)];
}

double usual_flops_per_thread(const ProcessorInfo& processor, bool bf16) {
  const auto has = [&](const char* feature) {
    return (' ' + processor.features + ' ').find(fmt::format(" {} ", feature)) != std::string::npos;
  };
  if (bf16 && has("amx_bf16")) return 300e9;
  if (bf16 && has("avx512_bf16")) return 60e9;
  if (has("avx512f")) return 40e9;
  return has("avx2") ? 20e9 : 4e9;
}

// One thread of a server reaches about 8 GB/s, all of them what two channels carry at least.
double usual_memory_bytes_per_second(std::int64_t threads) {
  return std::min(8e9 * static_cast<double>(threads), 25e9);
}

std::vector<Finding> examine(const MachineFacts& facts) {
  std::vector<Finding> findings = Examination(facts).findings();
  for (const DirectoryFacts& directory : facts.directories) {
    for (Finding& finding : examine_directory(directory)) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace spillway
