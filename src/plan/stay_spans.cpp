#include "plan/stay_spans.h"

#include <algorithm>
#include <utility>

namespace spillway {

std::vector<StaySpan> spans_of(const Plan& plan, std::size_t bundles) {
  std::vector<StaySpan> spans(plan.stays.size());
  for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
    const Instr& instr = plan.instrs[i];
    for (const StayId id : instr.begins) spans[index_of(id)].first = static_cast<std::int32_t>(i);
    for (const StayId id : instr.stays) {
      spans[index_of(id)].last = static_cast<std::int32_t>(i);
      spans[index_of(id)].accesses[static_cast<std::size_t>(instr.lane)] = static_cast<InstrId>(i);
    }
  }
  for (const StayId id : plan.exit.stays) spans[index_of(id)].last = StaySpan::never;
  std::vector<std::int32_t> next(bundles, StaySpan::never);  // those of one bundle are in the order in which they begin
  for (std::size_t s = spans.size(); s-- > 0;) {
    spans[s].next = std::exchange(next[index_of(plan.stays[s].bundle)], spans[s].first);
  }
  return spans;
}

void wait_for_pages(Plan& plan, const std::vector<StaySpan>& spans) {
  std::vector<StayId> before(static_cast<std::size_t>(plan.pages), StayId::none);  // by page: what lay there last
  const auto lay = [&](StayId id) {
    for (const PageId page : plan.stays[index_of(id)].pages) before[index_of(page)] = id;
  };
  for (const StayId id : plan.entry.stays) lay(id);
  for (Instr& instr : plan.instrs) {
    for (const StayId id : instr.begins) {
      Accesses last = no_accesses;
      for (const PageId page : plan.stays[index_of(id)].pages) {
        if (before[index_of(page)] == StayId::none) continue;
        const Accesses& accesses = spans[index_of(before[index_of(page)])].accesses;
        for (std::size_t lane = 0; lane < lane_count; ++lane) last[lane] = std::max(last[lane], accesses[lane]);
      }
      for (const InstrId wait : last) {
        if (wait != InstrId::none) instr.after.push_back(wait);
      }
      lay(id);
    }
    std::sort(instr.after.begin(), instr.after.end());
    instr.after.erase(std::unique(instr.after.begin(), instr.after.end()), instr.after.end());
  }
}

void keep_pages(Plan& plan, const Layout& layout) { wait_for_pages(plan, spans_of(plan, layout.bundles.size())); }

}  // namespace spillway
