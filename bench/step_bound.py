#!/usr/bin/env python3
"""How fast a step could be at best, by a linear program: no plan that the planner could make of the same Layout,
in as many pages and on the same disk, is faster.

    plan_bench ... uses=FILE
    step_bound.py FILE [group_seconds]

Needs python3-scipy. FILE says what the planner is given: the segments of a step, with their seconds and the bundles
that they use, which are in memory for all of a segment; and the disk, one rate for both directions. A gap is the time
between two uses of a bundle. Unknown are how much of the bundle leaves memory in which part of the gap, how much comes
back, how much is written, and how long each part of the step takes. Whatever a plan may do the linear program may do
too, and more:
- a bundle may be in memory in part, its pages lie anywhere, and what is between steps is as free as within one;
- moves take their bytes at the disk's rate and nothing else, and begin without waiting for others;
- segments are grouped, `group_seconds` of computing in each (0.003): a move in a group is in time for all of it, and
  memory counts only while its largest segment runs.
So the true optimum lies between this bound and the best plan known; smaller groups raise the bound.
"""
import json
import sys

import numpy
from scipy.optimize import linprog
from scipy.sparse import csr_matrix


class Group:
    """Segments in turn: seconds of computing, pages in use in the largest, and what is used."""

    def __init__(self):
        self.seconds = 0.0
        self.pages = 0
        self.uses = {}  # by bundle: [pages, bytes, state, creates, changes, ends]

    def add(self, segment):
        self.seconds += segment["seconds"]
        self.pages = max(self.pages, sum(use[1] for use in segment["uses"]))
        for bundle, pages, size, state, creates, writes, ends in segment["uses"]:
            before = self.uses.get(bundle, [0, 0, 0, creates, False, False])
            self.uses[bundle] = [pages, size, state, before[3], before[4] or writes or creates, ends]


class Gap:
    def __init__(self, use, begin, end, dirty):
        self.pages, self.size, self.state = use[0], use[1], use[2]
        self.begin, self.end = begin, end  # groups; end may lie in the next step
        self.dirty = dirty  # the use before it changed the bundle


def grouped(segments, seconds):
    groups = [Group()]
    for segment in segments:
        if groups[-1].seconds >= seconds:
            groups.append(Group())
        groups[-1].add(segment)
    return groups


def gaps_of(groups):
    """By bundle, in order; those of state go round, from one after a change if there is any."""
    touches = {}
    for number, group in enumerate(groups):
        for bundle, use in group.uses.items():
            touches.setdefault(bundle, []).append((number, use))
    result = []
    for uses in touches.values():
        gaps = []
        for (begin, use), (end, following) in zip(uses, uses[1:]):
            if not use[5] and not following[3]:
                gaps.append(Gap(use, begin, end, use[4]))
        last, first = uses[-1], uses[0]
        if last[1][2] and not last[1][5] and not first[1][3]:
            gaps.append(Gap(last[1], last[0], first[0] + len(groups), last[1][4]))
        first_dirty = next((i for i, gap in enumerate(gaps) if gap.dirty), 0)
        result.append(gaps[first_dirty:] + gaps[:first_dirty] if last[1][2] else gaps)
    return result


class Rows:
    """Of a sparse matrix, and what they are compared with."""

    def __init__(self):
        self.rows, self.columns, self.values, self.limits = [], [], [], []

    def add(self, terms, limit):
        for column, value in terms:
            self.rows.append(len(self.limits))
            self.columns.append(column)
            self.values.append(value)
        self.limits.append(limit)

    def matrix(self, columns):
        return csr_matrix((self.values, (self.rows, self.columns)), shape=(len(self.limits), columns))


class StepBound:
    def __init__(self, step, group_seconds):
        self.groups = grouped(step["segments"], group_seconds)
        self.rate = step["disk_bytes_per_second"]
        self.upper, self.equal = Rows(), Rows()
        count = len(self.groups)
        self.variables = count  # the first ones: seconds of each group
        self.memory = [[] for _ in range(count)]  # terms, in pages
        self.free = numpy.array([step["pages"] - group.pages for group in self.groups], dtype=float)
        self.disk = [[] for _ in range(count)]  # terms, in bytes
        for gaps in gaps_of(self.groups):
            self.add_bundle(gaps)
        for group in range(count):
            self.upper.add(self.memory[group], self.free[group])
            self.upper.add([(v, size / self.rate) for v, size in self.disk[group]] + [(group, -1)], 0)

    def new_variables(self, count):
        self.variables += count
        return list(range(self.variables - count, self.variables))

    def add_bundle(self, gaps):
        """Shares of one bundle that leave in each group of a gap, written then or dropped, or that are read."""
        never_changes = not any(gap.dirty for gap in gaps)
        written = []  # of this version
        for gap in gaps:
            span = range(gap.begin, gap.end + 1)
            if gap.dirty:
                written = []
            evicted = [] if never_changes else self.new_variables(len(span))
            dropped = [] if gap.dirty else self.new_variables(len(span))
            read = self.new_variables(len(span))
            cleaned = [] if never_changes else self.new_variables(len(span))  # written, and still in memory
            if not gap.dirty and not (never_changes and gap.state):
                self.upper.add([(v, 1) for v in dropped] + [(v, -1) for v in written], 0)
            leaves = evicted + dropped
            self.equal.add([(v, 1) for v in leaves] + [(v, -1) for v in read], 0)
            self.upper.add([(v, 1) for v in leaves], 1)
            written = written + evicted + cleaned
            self.count_memory(gap, span, [evicted, dropped], read)
            for variables in (evicted, cleaned, read):
                for position, variable in enumerate(variables):
                    self.disk[span[position] % len(self.groups)].append((variable, gap.size))

    def count_memory(self, gap, span, leaving, read):
        inner = range(1, len(span) - 1)  # the uses themselves count in their groups
        for position in inner:
            self.free[span[position] % len(self.groups)] -= gap.pages
        for variables in leaving:
            for begin, variable in enumerate(variables):
                for position in range(max(begin, 1), len(span) - 1):
                    self.memory[span[position] % len(self.groups)].append((variable, -gap.pages))
        for begin, variable in enumerate(read):
            for position in range(begin + 1, len(span) - 1):
                self.memory[span[position] % len(self.groups)].append((variable, gap.pages))

    def solve(self):
        count = len(self.groups)
        cost = numpy.zeros(self.variables)
        cost[:count] = 1
        bounds = [(group.seconds, None) for group in self.groups] + [(0, 1)] * (self.variables - count)
        result = linprog(cost, A_ub=self.upper.matrix(self.variables), b_ub=self.upper.limits,
                         A_eq=self.equal.matrix(self.variables), b_eq=self.equal.limits, bounds=bounds,
                         method="highs-ipm")
        if result.status != 0:
            sys.exit(f"step_bound: {result.message}")
        return result.x[:count]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        step = json.load(file)
    bound = StepBound(step, float(sys.argv[2]) if len(sys.argv) > 2 else 0.003)
    seconds = bound.solve()
    computing = sum(group.seconds for group in bound.groups)
    print(f"{len(bound.groups)} groups, {bound.variables} unknowns")
    print(f"at best {seconds.sum():.4f} s a step, of which {computing:.4f} computing; "
          f"the plan has {step['plan_seconds']:.4f}, {step['plan_seconds'] / seconds.sum():.3f} of it")


if __name__ == "__main__":
    main()
