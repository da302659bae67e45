// From the rates of a machine to what the ops and moves of one Program take on it.
#pragma once

#include <vector>

#include "machine/rates.h"
#include "program/program.h"
#include "sim/simulate.h"

namespace spillway {

// What the time of an op depends on: its name, operand types and attributes, and its cost for rooflines.
OpClass class_of(const Program& program, const Op& op);

// The classes of a Program, each once, and for each op which one is its.
struct OpClasses {
  std::vector<OpClass> classes;
  std::vector<std::size_t> of_op;   // by op, into classes
  std::vector<std::int64_t> count;  // by class: ops of it
};
OpClasses classes_of(const Program& program);

// What simulate needs of a machine, with `disk` for all spill directories `together`.
StepRates step_rates(const Program& program, const MachineRates& rates, const DiskRate& disk);

}  // namespace spillway
