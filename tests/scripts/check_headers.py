#!/usr/bin/env python3
"""Every header of src/ compiles alone, newest changes first, within a time limit.

Usage: check_headers.py BUILD_FOLDER [SECONDS]. A header that passed is not compiled again until a header below src/
changes. When the time is up those that are left are counted and wait for the next run.
"""
import pathlib
import sys

from newest_first import ROOT, check_within, digest_of


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 1200.0
    headers = sorted((ROOT / "src").rglob("*.h"))
    flags = ["-std=c++20", "-Isrc", "-Wall", "-Wextra", "-Wno-psabi", "-DSPILLWAY_TARGET=baseline",
             "-fopenmp", "-fsyntax-only", "-x", "c++", "/dev/null"]
    return check_within(seconds, headers, lambda path: ["g++", "-include", str(path), *flags], build / "headers",
                        digest_of(headers))


if __name__ == "__main__":
    sys.exit(main())
