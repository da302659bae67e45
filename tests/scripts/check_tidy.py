#!/usr/bin/env python3
"""clang-tidy over src/, newest changes first, within a time limit.

Usage: check_tidy.py BUILD_FOLDER [SECONDS]. A file that passed is not checked again until it, a header below src/ or
.clang-tidy changes. When the time is up the files that are left are counted and wait for the next run; findings are
errors at once.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def newest_first():
    """Paths by how lately git says they changed: what is not committed yet, then commit by commit."""
    order = {}
    for command in (["git", "ls-files", "--others", "--exclude-standard"], ["git", "diff", "--name-only", "HEAD"],
                    ["git", "log", "--format=", "--name-only", "--max-count=300"]):
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        for name in result.stdout.split("\n"):
            order.setdefault(name, len(order))
    return order


def digest_of(paths):
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def commands_of(build):
    """The commands, for each source by itself where several are compiled together."""
    commands = []
    for command in json.loads((build / "compile_commands.json").read_text()):
        file = pathlib.Path(command["directory"], command["file"])
        if file.parent.name != "Unity":
            commands.append(command)
            continue
        for source in re.findall(r'^#include "([^"]+)"', file.read_text(), re.M):
            commands.append({**command, "file": source, "command": command["command"].replace(str(file), source)})
    return commands


def sources_of(build):
    """One path of src/ each, though a kernel is compiled for several targets."""
    paths = {pathlib.Path(c["directory"], c["file"]).resolve() for c in commands_of(build)}
    order = newest_first()
    own = [p for p in paths if p.is_relative_to(ROOT / "src") and p.suffix == ".cpp"]  # not what nvcc compiles
    return sorted(own, key=lambda p: (order.get(str(p.relative_to(ROOT)), len(order)), p))


def gcc_headers():
    """For omp.h, which clang does not bring; after its own headers."""
    found = subprocess.run(["g++", "-print-file-name=include"], capture_output=True, text=True, check=True)
    return ["--extra-arg=-idirafter" + found.stdout.strip(), "--extra-arg=-Wno-unknown-warning-option"]


def tidy(path, build, extra):
    command = ["clang-tidy", "--quiet", "-p", str(build), *extra, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 240.0
    stamps = build / "tidy"
    stamps.mkdir(exist_ok=True)
    (stamps / "compile_commands.json").write_text(json.dumps(commands_of(build)))
    shared = digest_of(sorted((ROOT / "src").rglob("*.h")) + [ROOT / ".clang-tidy"])
    deadline = time.monotonic() + seconds
    extra = gcc_headers()

    def check(path):
        stamp = stamps / str(path.relative_to(ROOT)).replace("/", "_")
        digest = shared + digest_of([path])
        if stamp.is_file() and stamp.read_text() == digest:
            return "passed before", ""
        if time.monotonic() > deadline:
            return "left", ""
        result = tidy(path, stamps, extra)
        if result.returncode != 0:
            return "failed", result.stdout + result.stderr
        stamp.write_text(digest)
        return "passed", ""

    counts = {"passed": 0, "passed before": 0, "left": 0, "failed": 0}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for outcome, text in pool.map(check, sources_of(build)):
            counts[outcome] += 1
            if text:
                print(text)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if counts["failed"] or counts["passed"] + counts["passed before"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
