#!/usr/bin/env python3
"""clang-tidy over src/, newest changes first, within a time limit.

Usage: check_tidy.py BUILD_FOLDER [SECONDS]. A file that passed is not checked again until it, a header below src/ or
.clang-tidy changes. When the time is up the files that are left are counted and wait for the next run; findings are
errors at once.
"""
import json
import pathlib
import re
import subprocess
import sys

from newest_first import ROOT, check_within, digest_of


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


def gcc_headers():
    """For omp.h, which clang does not bring; after its own headers."""
    found = subprocess.run(["g++", "-print-file-name=include"], capture_output=True, text=True, check=True)
    return ["--extra-arg=-idirafter" + found.stdout.strip(), "--extra-arg=-Wno-unknown-warning-option"]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 240.0
    stamps = build / "tidy"
    stamps.mkdir(exist_ok=True)
    commands = commands_of(build)
    (stamps / "compile_commands.json").write_text(json.dumps(commands))
    # One path of src/ each, though a kernel is compiled for several targets; not what nvcc compiles.
    paths = {pathlib.Path(c["directory"], c["file"]).resolve() for c in commands}
    own = [p for p in paths if p.is_relative_to(ROOT / "src") and p.suffix == ".cpp"]
    shared = digest_of(sorted((ROOT / "src").rglob("*.h")) + [ROOT / ".clang-tidy"])
    extra = gcc_headers()
    command = ["clang-tidy", "--quiet", "-p", str(stamps), *extra]
    return check_within(seconds, own, lambda path: [*command, str(path)], stamps, shared)


if __name__ == "__main__":
    sys.exit(main())
