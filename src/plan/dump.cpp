// A plan in words.
#include "base/error.h"
#include "plan/plan.h"
#include "program/spec.h"

namespace spillway {

std::string dump(const Plan& plan, const Layout& layout, const Program& program) {
  std::string text = fmt::format("{} pages, entry {} stays, exit {} stays\n", plan.pages, plan.entry.stays.size(),
                                 plan.exit.stays.size());
  if (plan.device_pages > 0) text += fmt::format("{} pages of the device follow\n", plan.device_pages);
  for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
    const Instr& instr = plan.instrs[i];
    text += fmt::format("{:6} {:7} ", i, name_of(instr.lane));
    if (instr.kind == Instr::Kind::run) {
      const Op& op = program.ops[index_of(instr.op)];
      text += fmt::format("{} ({})", op.spec->name, describe(op.label));
    } else if (instr.kind == Instr::Kind::commit) {
      text += "commit";
    } else {
      const Stay& stay = plan.stays[index_of(instr.stays.front())];
      text += fmt::format("bundle {} {} bytes", index_of(stay.bundle), layout.bundles[index_of(stay.bundle)].bytes);
      if (is_direct(plan, instr)) text += " of the device, directly";
    }
    for (const StayId id : instr.begins) {
      text += fmt::format(" +{}[", index_of(id));
      for (const PageId page : plan.stays[index_of(id)].pages) text += fmt::format(" {}", index_of(page));
      text += " ]";
    }
    for (const InstrId wait : instr.after) text += fmt::format(" <{}", index_of(wait));
    if (instr.first) text += " first";
    text += "\n";
  }
  return text;
}

}  // namespace spillway
