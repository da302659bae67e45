"""Checks of many files within a time limit, newest changes first, and none again that passed and did not change."""
import concurrent.futures
import hashlib
import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def newest_first(paths):
    """By how lately git says they changed: what is not committed yet, then commit by commit."""
    order = {}
    for command in (["git", "ls-files", "--others", "--exclude-standard"], ["git", "diff", "--name-only", "HEAD"],
                    ["git", "log", "--format=", "--name-only", "--max-count=300"]):
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        for name in result.stdout.split("\n"):
            order.setdefault(name, len(order))
    return sorted(paths, key=lambda p: (order.get(str(p.relative_to(ROOT)), len(order)), p))


def digest_of(paths):
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def check_within(seconds, paths, command_of, stamps, shared):
    """Runs command_of(path), a list, for each path on all processors; prints what those that fail say, and the counts.

    A path that passed is not checked again until it or `shared`, a digest of all else that matters, changes: a file in
    the folder `stamps` says so. What is left when the time is up waits for the next run. The exit status: 1 where one
    failed or none passed.
    """
    stamps.mkdir(exist_ok=True)
    deadline = time.monotonic() + seconds

    def check(path):
        stamp = stamps / str(path.relative_to(ROOT)).replace("/", "_")
        digest = shared + digest_of([path])
        if stamp.is_file() and stamp.read_text() == digest:
            return "passed before", ""
        if time.monotonic() > deadline:
            return "left", ""
        result = subprocess.run(command_of(path), cwd=ROOT, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            return "failed", result.stdout + result.stderr
        stamp.write_text(digest)
        return "passed", ""

    counts = {"passed": 0, "passed before": 0, "left": 0, "failed": 0}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for outcome, text in pool.map(check, newest_first(paths)):
            counts[outcome] += 1
            if text:
                print(text)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if counts["failed"] or counts["passed"] + counts["passed before"] == 0 else 0
