// How long planning takes, and what the simulator says of the plan, on a machine that is written down here: nothing is
// run and nothing measured but the planner.
//   plan_bench [preset=gpt2-124m|llama-70b|...] [micro_batches=4] [tokens=1024] [share=0.25] [clip=0] [commits=0]
//              [policy=farthest] [settling=0.25] [flops=1.1e11] [memory=2e10] [disk=1.4e9] [waits=0]
//              [device=SHARE] [link=8e9] [uses=FILE]
// share 0 is the smallest budget. flops, memory, disk: what the machine carries a second. waits: that many of the
// longest waits of compute are shown. device: a device above the host, of that share; link: each way. uses: what
// step_bound.py wants to know of the step is written there.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/steady_clock.h"
#include "model/presets.h"
#include "model/programs.h"
#include "plan/tiers.h"
#include "program/spec.h"
#include "sim/simulate.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

// The shape of Llama 2 70B.
ModelConfig llama_70b() {
  ModelConfig config = find_preset("llama3-8b")->config;
  config.hidden_size = 8192;
  config.intermediate_size = 28672;
  config.num_hidden_layers = 80;
  config.num_attention_heads = 64;
  config.num_key_value_heads = 8;
  config.vocab_size = 32000;
  return config;
}

std::vector<double> op_seconds(const Program& program, double flops_per_second, double bytes_per_second) {
  std::vector<double> seconds;
  for (const Op& op : program.ops) {
    std::vector<ValueType> reads, writes;
    for (const Operand& read : op.reads) reads.push_back(program.type_of(read));
    for (const Operand& write : op.writes) writes.push_back(program.type_of(write));
    const Cost cost = op.spec->cost(op.attrs, reads, writes);
    seconds.push_back(std::max(cost.flops / flops_per_second, cost.bytes / bytes_per_second));
  }
  return seconds;
}

Policy chosen_policy(const std::string& name) {
  if (const std::optional<Policy> policy = policy_named(name)) return *policy;
  std::string names;
  for (const Policy policy : all_policies) names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(policy));
  throw UserError("policy={}: one of {}", name, names);
}

// Before which ops compute waited longest, and for what.
void show_waits(const Plan& plan, const Layout& layout, const Program& program, const Timeline& timeline, int count) {
  struct Wait {
    double seconds = 0;
    InstrId instr = InstrId::none;
  };
  std::vector<Wait> waits;
  double free_at = 0;
  for (const InstrId id : plan.lanes[0]) {
    waits.push_back({timeline.starts[index_of(id)] - free_at, id});
    free_at = timeline.ends[index_of(id)];
  }
  std::stable_sort(waits.begin(), waits.end(), [](const Wait& a, const Wait& b) { return a.seconds > b.seconds; });
  waits.resize(std::min(waits.size(), static_cast<std::size_t>(count)));
  for (const Wait& wait : waits) {
    const Instr& instr = plan.instrs[index_of(wait.instr)];
    std::string what;
    for (const InstrId after : instr.after) {
      const Instr& other = plan.instrs[index_of(after)];
      if (other.kind == Instr::Kind::run ||
          timeline.ends[index_of(after)] < timeline.starts[index_of(wait.instr)] - 1e-6)
        continue;
      const BundleId bundle = plan.stays[index_of(other.stays.front())].bundle;
      what += fmt::format(" {} of bundle {}, {}, from {:.3f}", name_of(other.lane), index_of(bundle),
                          format_bytes(layout.bundles[index_of(bundle)].bytes), timeline.starts[index_of(after)]);
    }
    std::printf("  %.3f s at %.3f before %s:%s\n", wait.seconds, timeline.starts[index_of(wait.instr)],
                describe(program.ops[index_of(instr.op)].label).c_str(), what.c_str());
  }
}

// What the planner was given and what it made of it, as JSON.
void write_uses(const std::string& path, const Layout& layout, const Program& program, const Plan& plan,
                const spillway::StepRates& rates, double plan_seconds) {
  std::ofstream file(path);
  file << fmt::format(R"({{"pages": {}, "disk_bytes_per_second": {}, "plan_seconds": {},)", plan.pages,
                      rates.read_bytes_per_second, plan_seconds);
  file << "\n\"segments\": [";
  const ProgramLayout& step = layout.programs[0];
  for (std::size_t s = 0; s < step.uses.size(); ++s) {
    const auto begin = static_cast<std::size_t>(step.segments.begin[s]);
    double seconds = 0;
    for (std::size_t i = begin; i < static_cast<std::size_t>(step.segments.begin[s + 1]); ++i) {
      seconds += rates.op_seconds[i];
    }
    std::vector<std::string> uses;
    for (const Use& use : step.uses[s]) {
      const Bundle& bundle = layout.bundles[index_of(use.bundle)];
      uses.push_back(fmt::format("[{}, {}, {}, {}, {}, {}, {}]", index_of(use.bundle), layout.pages_of(use.bundle),
                                 bundle.bytes, bundle.state, use.creates, use.writes, use.ends));
    }
    file << fmt::format(R"({}{{"seconds": {}, "label": "{}", "uses": [{}]}})", s == 0 ? "\n" : ",\n", seconds,
                        describe(program.ops[begin].label), fmt::join(uses, ", "));
  }
  file << "\n]}\n";
  if (!file.flush()) throw UserError("uses={}: cannot be written", path);
}

int bench(const Settings& settings) {
  const std::string preset = settings.text("preset", "gpt2-124m");
  const bool has_device = !settings.text("device", "").empty();
  const std::string uses = settings.text("uses", "");
  if (!uses.empty() && has_device) throw UserError("uses={}: not with a device", uses);
  ModelConfig config = preset == "llama-70b" ? llama_70b() : find_preset(preset)->config;
  if (config.vocab_size == 0) config.vocab_size = 320;
  StepShape shape;
  shape.sequences = 1;
  shape.sequence_length = settings.integer("tokens", 1024);
  shape.micro_batches = settings.integer("micro_batches", 4);
  shape.way = settings.real("clip", 0) > 0 ? UpdateWay::after : UpdateWay::during;

  auto start = SteadyClock::now();
  const Model model(config, DType::bf16, Purpose::training, {});
  const TrainingProgram training = record_training(model, shape);
  const Program& program = training.program;
  std::printf("%s: %zu ops, %zu values, recorded in %.3f s\n", preset.c_str(), program.ops.size(),
              program.values.size(), seconds_since(start));
  start = SteadyClock::now();
  const std::vector<const Program*> programs{&program};
  const Layout layout = lay_out(programs, model.state(), 0);
  std::printf("layout: %d segments, %zu bundles, %.3f s\n", layout.programs[0].segments.count(), layout.bundles.size(),
              seconds_since(start));
  const std::int64_t in_memory = in_memory_pages(layout, 0);
  const std::int64_t smallest = smallest_pages(layout);
  const std::int64_t pages =
      std::max(smallest, static_cast<std::int64_t>(settings.real("share", 0.25) * static_cast<double>(in_memory)));
  start = SteadyClock::now();
  const PlanRequest request{.policy = chosen_policy(settings.text("policy", "farthest")),
                            .settling = settings.real("settling", default_settling),
                            .commits = settings.integer("commits", 0) > 0};
  const TierPages tiers{
      std::max(smallest, static_cast<std::int64_t>(settings.real("device", 0) * static_cast<double>(in_memory))),
      std::max(pages, smallest_host_pages(layout))};
  const Plan plan = has_device ? make_tiered_plan(layout, 0, tiers, request) : make_plan(layout, 0, pages, request);
  const double plan_seconds = seconds_since(start);
  start = SteadyClock::now();
  const std::string broken = verify(plan, layout, program);
  std::printf("plan: %s of %s (smallest %s), %zu instructions, %.3f s; verified in %.3f s%s\n",
              format_bytes(pages * layout.page_bytes).c_str(), format_bytes(in_memory * layout.page_bytes).c_str(),
              format_bytes(smallest * layout.page_bytes).c_str(), plan.instrs.size(), plan_seconds,
              seconds_since(start), broken.c_str());
  spillway::StepRates rates;
  rates.op_seconds = op_seconds(program, settings.real("flops", 1.1e11), settings.real("memory", 2e10));
  rates.read_bytes_per_second = rates.write_bytes_per_second = rates.mixed_bytes_per_second =
      settings.real("disk", 1.4e9);
  rates.link = {settings.real("link", 8e9), settings.real("link", 8e9), 10e-6};
  start = SteadyClock::now();
  const Timeline timeline = simulate_steady(plan, layout, rates);
  std::printf("a step: %.3f s, compute %.3f s, waits %.3f s, disk %.3f s, read %s, written %s; ratio %.4f; %.3f s\n",
              timeline.seconds, timeline.compute_seconds, timeline.stalled_seconds, timeline.disk_seconds,
              format_bytes(plan.traffic.read_bytes).c_str(), format_bytes(plan.traffic.write_bytes).c_str(),
              timeline.compute_seconds / timeline.seconds, seconds_since(start));
  if (has_device) {
    std::printf("device: %s, %s up, %s down, link %.3f s\n", format_bytes(tiers.device * layout.page_bytes).c_str(),
                format_bytes(plan.up_bytes).c_str(), format_bytes(plan.down_bytes).c_str(), timeline.link_seconds);
  }
  show_waits(plan, layout, program, timeline, static_cast<int>(settings.integer("waits", 0)));
  if (!uses.empty()) write_uses(uses, layout, program, plan, rates, timeline.seconds);
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_bench(argc, argv, spillway::bench::bench); }
