#include "session/planned_programs.h"

#include <malloc.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/memory_info.h"
#include "device/page_pool.h"
#include "ops/dispatch.h"
#include "plan/flat.h"
#include "plan/stay_spans.h"
#include "plan/tiers.h"
#include "plan/update_split.h"
#include "program/spec.h"

namespace spillway {
namespace {

// Measured on the release build with the shapes of llama-30m, gpt2-124m, smollm2-135m and tinyllama-1.1b. The process:
// code, libraries (together 13.3 MiB when files are cached) and the allocator before anything is recorded.
constexpr std::int64_t process_bytes = 15 * mib;
constexpr std::int64_t cuda_build_bytes = mib;              // more, where kernels of CUDA are linked in
constexpr std::int64_t bytes_per_thread = 256 * kib;        // touched stack
constexpr std::int64_t bytes_per_product = 64 * kib;        // 44 KiB: code that oneDNN generates
constexpr std::int64_t library_bytes_per_thread = 3 * mib;  // in which oneDNN packs without AVX-512: 2.8 MiB
constexpr std::int64_t bytes_per_kernel = 4 * kib;
// 580 B with its values, in Program, layout, plan and executor, and what plans that were tried leave in the allocator.
constexpr std::int64_t bytes_per_op = 1000;
constexpr std::int64_t bytes_per_value = 64;
constexpr std::int64_t bytes_per_token = 24;           // what a tokenizer that is gone leaves in the allocator
constexpr std::int64_t watch_bytes_per_op = 300;       // its part of the catalog
constexpr std::int64_t staging_bytes_per_element = 8;  // a block on its way between a file and the state

// Huge pages may take this many times the memory of small ones, for a step in memory. Steps of models that take 1.2 and
// 1.3 times as much were faster in them at every budget tried, of one that takes 1.8 times at some.
constexpr double most_waste_of_huge_pages = 4.0 / 3;
// And what does not stay in memory for them may be so many times what does not in small ones; 1.7 was faster.
constexpr std::int64_t most_lacking_of_huge_pages = 2;

// What of the budget is not pages, for these Programs in pages of this size, so that `plan` and the run agree.
std::int64_t fixed_bytes_for(std::span<const Program* const> programs, const State& state, const KernelCache& kernels,
                             const RunChoices& choices, std::int64_t vocab_size, std::int64_t page_bytes) {
  const int threads = choices.threads;
  std::int64_t largest_block = 0;
  for (const Tensor& tensor : state.tensors()) {
    if (!tensor.committed) continue;  // neither loaded nor saved
    largest_block = std::max(largest_block, std::min(tensor.block_rows, tensor.rows) * tensor.cols);
  }
  std::int64_t bytes = process_bytes + (built_with_cuda() ? cuda_build_bytes : 0);
  bytes += vocab_size * bytes_per_token;
  bytes += static_cast<std::int64_t>(kernels.size()) * bytes_per_kernel;
  bytes += kernels.compiled_products() * bytes_per_product;
  bytes += threads * bytes_per_thread;
  if (best_isa() < Isa::avx512 && kernels.compiled_products() > 0) bytes += threads * library_bytes_per_thread;
  // A block while the model is loaded or saved; a slot while a commit is read, before there is scratch (Executor::run),
  // or while the manifest of one is written.
  const std::int64_t scratch_bytes = threads * round_up(kernels.scratch_bytes(), 4096);
  const std::int64_t block_bytes = largest_block * staging_bytes_per_element;
  bytes += choices.commits == Commits::none ? std::max(scratch_bytes + block_bytes, page_bytes)
                                            : scratch_bytes + std::max(block_bytes, page_bytes);
  for (const Program* program : programs) {
    bytes += static_cast<std::int64_t>(program->ops.size()) * bytes_per_op;
    bytes += static_cast<std::int64_t>(program->values.size()) * bytes_per_value;
    bytes += HostValues::bytes_of(*program);
  }
  return bytes;
}

// The flight record, which is mapped, and the catalog, with the text that is made of it.
std::int64_t watch_bytes_for(std::span<const Program* const> programs, const RunChoices& choices) {
  std::int64_t ops = 0;
  for (const Program* program : programs) ops += std::ssize(program->ops);
  return ring_bytes_for(rings_for(programs, choices)) + ops * watch_bytes_per_op;
}

// What an export holds at once: two slots, a block of its checksums' 4 MiB, and their text.
std::int64_t export_bytes_for(const State& state, std::int64_t page_bytes) {
  std::int64_t committed = 0;
  for (const Tensor& tensor : state.tensors()) committed += tensor.committed ? tensor.bytes() : 0;
  return 2 * page_bytes + 6 * mib + committed / (4 * mib) * 256;
}

// What is known of each slot: its state, and its place in the lists of the commits.
std::int64_t slot_tables_bytes_for(const Layout& layout, std::int64_t retained_commits) {
  constexpr std::int64_t bytes_per_slot = 40;
  return committed_pages(layout) * (retained_commits + 2) * bytes_per_slot;
}

// Counted wherever steps may commit, so that the smallest budget does not depend on how they do.
std::int64_t second_plan_bytes_for(const Program& program) { return std::ssize(program.ops) * bytes_per_op; }

std::vector<bool> bundles_of(const std::vector<PieceId>& pieces, const Layout& layout) {
  std::vector<bool> bundles(layout.bundles.size(), false);
  for (const PieceId piece : pieces) bundles[index_of(layout.piece_places[index_of(piece)].bundle)] = true;
  return bundles;
}

// By segment, what runs on the host beside the device when that updates this share of the parameters.
std::vector<bool> below_of(const PlannedPrograms& planned, std::size_t program, double device_share) {
  const auto number = static_cast<std::int32_t>(program);
  return updates_below(update_groups(*planned.programs[program], planned.layout, number), planned.layout, number,
                       device_share);
}

// Of the Program, as the request says; `of`: the plan whose boundary it shares, null for its own.
Plan plan_at(const PlannedPrograms& planned, std::size_t program, std::int64_t pages, PlanRequest request,
             const Plan* of) {
  const auto number = static_cast<std::int32_t>(program);
  if (!planned.has_device()) {
    const Residents boundary = of != nullptr ? residents_of(*of) : Residents();
    if (of != nullptr) request.entry = &boundary;
    return make_plan(planned.layout, number, pages, request);
  }
  const TierResidents boundary = of != nullptr ? tier_residents_of(*of) : TierResidents();
  return make_tiered_plan(planned.layout, number, {planned.device_pages, pages}, request,
                          of != nullptr ? &boundary : nullptr);
}

// As choices and links ask.
Plan plan_as(const PlannedPrograms& planned, std::size_t program, std::int64_t pages, const RunChoices& choices,
             const PlanLinks& links, bool commits, bool unplaced, const Plan* of) {
  const bool speculates = links.speculative == static_cast<std::int32_t>(program);
  const std::vector<bool> speculated = bundles_of(links.speculated, planned.layout);
  const std::vector<bool> pinned = bundles_of(choices.pinned, planned.layout);
  std::vector<bool> below;
  if (planned.has_device() && choices.splits_updates) below = below_of(planned, program, choices.device_updates);
  PlanRequest request;
  if (std::find(below.begin(), below.end(), true) != below.end()) request.below = &below;
  request.policy = choices.policy;
  request.settling = choices.settling;
  request.direct = choices.direct;
  request.pinned = &pinned;
  request.commits = commits;
  request.unplaced = unplaced;
  if (speculates) request.clean = &speculated;
  Plan plan = plan_at(planned, program, pages, request, of);
  for (std::size_t b = 0; speculates && b < speculated.size(); ++b) {
    if (speculated[b]) plan.held_slots += planned.layout.pages_of(static_cast<BundleId>(b));
  }
  return plan;
}

// Where the one leaves the state that the other needs.
void check_follows(const Plan& before, const Plan& after, const Layout& layout) {
  const std::vector<bool>& gone = layout.programs[static_cast<std::size_t>(before.program)].dead_on_exit;
  const std::vector<bool>& unneeded = layout.programs[static_cast<std::size_t>(after.program)].dead_on_entry;
  for (std::size_t b = 0; b < gone.size(); ++b) {
    if (gone[b] && !unneeded[b]) return;
  }
  const std::string broken = verify_follows(before, after, layout);
  SPILLWAY_CHECK(broken.empty(), "the plan of program {} does not follow that of {}: {}", after.program, before.program,
                 broken);
}

// What a budget that holds a step lacks of holding all of it.
std::int64_t lacking_bytes(const PlannedPrograms& planned) {
  return std::max<std::int64_t>(planned.in_memory_pages - planned.machine.pages(), 0) * planned.layout.page_bytes;
}

// Where the Programs' values lie in pages of this size (0: that of page_bytes_for), and what these and all else take.
void lay_out_in(PlannedPrograms& planned, std::int64_t page_bytes, const State& state, const RunChoices& choices,
                const KernelCache& kernels, std::int64_t vocab_size, const PlanLinks& links) {
  planned.layout = lay_out(planned.programs, state, page_bytes);
  Machine& machine = planned.machine;
  machine.budget_bytes = choices.budget_bytes;
  machine.fixed_bytes =
      fixed_bytes_for(planned.programs, state, kernels, choices, vocab_size, planned.layout.page_bytes);
  if (choices.ring_steps > 0) machine.fixed_bytes += watch_bytes_for(planned.programs, choices);
  for (std::size_t p = 0; p < planned.programs.size() && choices.commits != Commits::none; ++p) {
    if (links.may_commit(p)) machine.fixed_bytes += second_plan_bytes_for(*planned.programs[p]);
  }
  if (choices.commits != Commits::none)
    machine.fixed_bytes += slot_tables_bytes_for(planned.layout, choices.retained_commits);
  for (std::size_t p = 0; p < planned.programs.size() && choices.device_bytes > 0; ++p) {  // plans have copies too
    machine.fixed_bytes += second_plan_bytes_for(*planned.programs[p]);
  }
  if (choices.splits_updates) machine.fixed_bytes += choices.threads * bytes_per_thread;
  if (choices.exports) machine.fixed_bytes += export_bytes_for(state, planned.layout.page_bytes);
  machine.fixed_bytes += choices.reserved_bytes;
  machine.page_bytes = planned.layout.page_bytes;
  machine.device_bytes = choices.device_bytes;
  const bool tiers = planned.has_device();
  planned.least_pages = tiers ? smallest_host_pages(planned.layout) : smallest_pages(planned.layout);
  planned.in_memory_pages = 0;
  for (std::size_t p = 0; p < planned.programs.size(); ++p) {
    const auto number = static_cast<std::int32_t>(p);
    planned.in_memory_pages = std::max(planned.in_memory_pages, in_memory_pages(planned.layout, number));
    if (!tiers || !choices.splits_updates) continue;
    planned.least_pages =
        std::max(planned.least_pages, smallest_host_pages(planned.layout, number, below_of(planned, p, 0)));
  }
  planned.min_memory_bytes = round_up(machine.fixed_bytes + planned.least_pages * machine.page_bytes, mib);
  if (tiers) {  // below a device, at most all state and all that is alive, and room to visit it
    planned.min_device_bytes = smallest_pages(planned.layout) * machine.page_bytes;
    planned.device_pages = std::min(machine.device_pages(), planned.in_memory_pages);
    planned.in_memory_pages += visit_pages(planned.layout);
  }
  planned.in_memory_bytes = round_up(machine.fixed_bytes + planned.in_memory_pages * machine.page_bytes, mib);
}

// A device has pages of its own size, or stands for one that has.
bool may_be_huge(const PlannedPrograms& planned, const RunChoices& choices) {
  return choices.huge_pages && !planned.has_device() && planned.layout.page_bytes < huge_page_bytes;
}

}  // namespace

RingCapacities rings_for(std::span<const Program* const> programs, const RunChoices& choices) {
  std::int64_t ops = 0;
  for (const Program* program : programs) ops = std::max(ops, std::ssize(program->ops));
  return ring_capacities_for(ops, choices.ring_steps, choices.device_bytes > 0);
}

std::int64_t PlannedPrograms::peak_memory_bytes() const {
  return fits() ? machine.fixed_bytes + plans.front().pages * layout.page_bytes : 0;
}

std::int64_t PlannedPrograms::probe_bytes() const {
  return std::min(machine.pages(), plans.front().all_pages()) * layout.page_bytes;
}

std::int32_t PlannedPrograms::plan_of(std::int32_t program, bool commits) const {
  const std::int32_t plan = committing[static_cast<std::size_t>(program)];
  SPILLWAY_CHECK(!commits || plan >= 0, "no plan of program {} commits", program);
  return commits ? plan : program;
}

bool PlannedPrograms::commits(std::int32_t plan) const {
  return committing[static_cast<std::size_t>(plans[static_cast<std::size_t>(plan)].program)] == plan;
}

std::size_t PlanLinks::owner_of(std::size_t program) const {
  return program < boundaries.size() ? static_cast<std::size_t>(boundaries[program]) : 0;
}

bool PlanLinks::may_commit(std::size_t program) const { return program < commits.size() && commits[program]; }

void add_plan(PlannedPrograms& planned, std::size_t program, std::int64_t pages, const RunChoices& choices,
              const PlanLinks& links, bool commits) {
  const std::size_t owner = links.owner_of(program);
  const bool is_second = planned.plans.size() > program;
  commits = commits && links.may_commit(program);
  if (commits) planned.committing[program] = static_cast<std::int32_t>(planned.plans.size());
  const Plan* const of = owner != program || is_second ? &planned.plans[owner] : nullptr;
  const bool is_to_be_laid = planned.plans.empty() && choices.lays_pages && !planned.has_device();
  Plan plan = plan_as(planned, program, pages, choices, links, commits, is_to_be_laid, of);
  if (is_to_be_laid) {
    if (may_be_laid_flat(plan)) planned.first_unplaced = plan;
    keep_pages(plan, planned.layout);
  }
  planned.plans.push_back(std::move(plan));
  check_plan(planned, planned.plans.size() - 1, links);
}

Plan unplaced_plan(const PlannedPrograms& planned, std::size_t plan, const RunChoices& choices,
                   const PlanLinks& links) {
  const Plan& placed = planned.plans[plan];
  const std::size_t owner = links.owner_of(static_cast<std::size_t>(placed.program));
  return plan_as(planned, static_cast<std::size_t>(placed.program), placed.pages, choices, links,
                 planned.commits(static_cast<std::int32_t>(plan)), true,
                 plan == owner ? nullptr : &planned.plans[owner]);
}

void check_plan(const PlannedPrograms& planned, std::size_t number, const PlanLinks& links) {
  const Plan& plan = planned.plans[number];
  const auto program = static_cast<std::size_t>(plan.program);
  const std::string broken = verify(plan, planned.layout, *planned.programs[program]);
  SPILLWAY_CHECK(broken.empty(), "the plan of program {} does not hold: {}", program, broken);
  for (const Plan& other : planned.plans) {
    if (links.owner_of(static_cast<std::size_t>(other.program)) != links.owner_of(program)) continue;
    check_follows(other, plan, planned.layout);
    check_follows(plan, other, planned.layout);
  }
}

// Of all Programs, in their order.
static void add_plans(PlannedPrograms& planned, std::int64_t pages, const RunChoices& choices, const PlanLinks& links) {
  for (std::size_t p = 0; p < planned.programs.size(); ++p) {
    add_plan(planned, p, pages, choices, links, choices.commits == Commits::all);
  }
}

PlannedPrograms lay_out_programs(std::vector<const Program*> programs, const State& state, const RunChoices& choices,
                                 KernelCache& kernels, std::int64_t vocab_size, std::int64_t page_bytes,
                                 const PlanLinks& links) {
  PlannedPrograms planned;
  planned.programs = std::move(programs);
  planned.committing.assign(planned.programs.size(), -1);
  for (const Program* program : planned.programs) kernels.make_all(*program);
  lay_out_in(planned, page_bytes, state, choices, kernels, vocab_size, links);
  if (page_bytes != 0 || !may_be_huge(planned, choices)) return planned;
  PlannedPrograms huge;
  huge.programs = planned.programs;
  huge.committing = planned.committing;
  lay_out_in(huge, huge_page_bytes, state, choices, kernels, vocab_size, links);
  const auto bytes_in_memory = [](const PlannedPrograms& of) {
    return static_cast<double>(of.in_memory_pages * of.layout.page_bytes);
  };
  if (bytes_in_memory(huge) > most_waste_of_huge_pages * bytes_in_memory(planned)) return planned;
  huge.min_memory_bytes = planned.min_memory_bytes = std::min(planned.min_memory_bytes, huge.min_memory_bytes);
  huge.in_memory_bytes = planned.in_memory_bytes = std::min(planned.in_memory_bytes, huge.in_memory_bytes);
  const bool moves_much_more = lacking_bytes(huge) > most_lacking_of_huge_pages * lacking_bytes(planned);
  return huge.may_fit() && !moves_much_more ? huge : planned;
}

PlannedPrograms plan_programs(std::vector<const Program*> programs, const State& state, const RunChoices& choices,
                              KernelCache& kernels, std::int64_t vocab_size, std::int64_t page_bytes,
                              const PlanLinks& links) {
  PlannedPrograms planned =
      lay_out_programs(std::move(programs), state, choices, kernels, vocab_size, page_bytes, links);
  if (!planned.may_fit()) return planned;
  std::int64_t pages = std::min(planned.machine.pages(), planned.in_memory_pages);
  if (choices.most_pages > 0) pages = std::min(pages, std::max(choices.most_pages, planned.least_pages));
  add_plans(planned, pages, choices, links);
  return planned;
}

void plan_again(PlannedPrograms& planned, const RunChoices& choices, const PlanLinks& links) {
  if (!planned.fits()) return;
  const std::int64_t pages = planned.plans.front().pages;
  planned.plans.clear();
  planned.first_unplaced = {};
  planned.committing.assign(planned.programs.size(), -1);
  add_plans(planned, pages, choices, links);
}

UpdateSides update_sides(const Plan& plan, const Program& program) {
  UpdateSides sides;
  for (const Instr& instr : plan.instrs) {
    if (instr.kind != Instr::Kind::run || !program.ops[index_of(instr.op)].spec->anywhere) continue;
    const std::int64_t parameters = program.type_of(program.ops[index_of(instr.op)].writes.front()).elements();
    const bool on_host = instr.lane == LaneId::update;
    (on_host ? sides.host_ops : sides.other_ops) += 1;
    (on_host ? sides.host_parameters : sides.other_parameters) += parameters;
  }
  return sides;
}

bool moves_directly(const PlannedPrograms& planned) {
  return std::any_of(planned.plans.begin(), planned.plans.end(),
                     [](const Plan& plan) { return plan.direct.read_bytes + plan.direct.write_bytes > 0; });
}

DiskWrites disk_writes(const Plan& plan, const Layout& layout) {
  DiskWrites writes;
  for (const Instr& instr : plan.instrs) {
    if (instr.kind != Instr::Kind::write) continue;
    const Bundle& bundle = layout.bundles[index_of(plan.stays[index_of(instr.stays.front())].bundle)];
    (bundle.state ? writes.state_bytes : writes.local_bytes) += bundle.bytes;
  }
  return writes;
}

std::int64_t list_bytes(const PlannedPrograms& planned) {
  std::int64_t ops = 0;
  for (const Program* program : planned.programs) ops += std::ssize(program->ops);
  return ops * (2 * bytes_per_op + watch_bytes_per_op);
}

std::string refusal(const PlannedPrograms& planned, std::string_view advice) {
  if (planned.device_is_too_small()) {
    return fmt::format("{} is too small for a device; the smallest that works is {}; give that much{}",
                       format_bytes(planned.machine.device_bytes), format_budget(planned.min_device_bytes), advice);
  }
  return fmt::format("{} is too small; the smallest budget that works is {}; give that much{}",
                     format_bytes(planned.machine.budget_bytes), format_budget(planned.min_memory_bytes), advice);
}

void require_fit(const PlannedPrograms& planned, std::string_view advice) {
  if (planned.fits()) return;
  throw DoesNotFit("{}: {}", planned.device_is_too_small() ? "device_memory" : "memory", refusal(planned, advice));
}

void check_fixed_memory(const PlannedPrograms& planned) {
  malloc_trim(0);
  const std::int64_t wanted = rss_bytes() + planned.plans.front().pages * planned.layout.page_bytes;
  if (wanted <= planned.machine.budget_bytes || is_instrumented()) return;
  throw DoesNotFit("memory: {} would be resident, {} more than was planned for; give {}", format_bytes(wanted),
                   format_bytes(wanted - planned.machine.budget_bytes), format_budget(wanted));
}

}  // namespace spillway
