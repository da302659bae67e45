#!/usr/bin/env python3
"""README.md agrees with the program: keys and defaults, verbs, version. Usage: check_readme.py SPILLWAY."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def keys_of_program(program):
    printed = output_of(program, "train", "--print-config")
    return dict(re.findall(r'^(\w+): (.*)$', printed, re.M))


def keys_of_readme(text):
    """Rows of the table: | `key` | default | meaning |."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.M)
    return {key: default.strip().strip("`") for key, default in rows}


def shown(value):
    return value.strip('"').replace("[]", "")


def main():
    program = sys.argv[1]
    text = (ROOT / "README.md").read_text()
    real, told = keys_of_program(program), keys_of_readme(text)
    faults = [f"README.md has no row for the key {key}" for key in real.keys() - told.keys()]
    faults += [f"README.md has a key {key} that is none" for key in told.keys() - real.keys()]
    faults += [f"README.md says {key} is {told[key]!r}, the program {shown(real[key])!r}"
               for key in real.keys() & told.keys() if shown(real[key]) != told[key]]
    verbs = re.findall(r"^  (\w+) {3,}", output_of(program, "--help"), re.M)
    faults += [f"README.md does not show spillway {verb}" for verb in verbs if f"spillway {verb}" not in text]
    project = re.search(r"project\(spillway VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    if output_of(program, "--version").strip() != f"spillway {project}":
        faults.append(f"spillway --version is not {project}, as in CMakeLists.txt")
    print("\n".join(faults))
    return 1 if faults or not real or not verbs else 0


if __name__ == "__main__":
    sys.exit(main())
