#!/usr/bin/env python3
"""Who may include whom. The rooms and the rooms each may use are read from CMakeLists.txt, so there is one list."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)

PURE = {"state", "program", "ops", "model", "machine", "plan", "sim", "passes"}
# Files of ops/ itself that say what an op is, not how it runs.
PURE_OPS_FILES = {"float_types.h"}
# Headers of the operating system and of input/output that the pure side does without.
PHYSICAL_HEADERS = re.compile(
    r"^(sys/.*|unistd\.h|fcntl\.h|liburing\.h|fstream|iostream|filesystem|cstdio|stdio\.h|thread|mutex|"
    r"condition_variable|atomic|omp\.h|pthread\.h|immintrin\.h)$")


def allowed_rooms():
    """room -> the rooms it may include, itself among them."""
    text = (ROOT / "CMakeLists.txt").read_text()
    direct = {}
    for name, body in re.findall(r"^spillway_(?:room|kernels)\((\w+)([^)]*)\)", text, re.M):
        listed = re.search(r"ROOMS((?:\s+(?!LINK\b|EXCLUDE\b|ROOMS\b)\w+)+)", body)
        direct[name] = listed.group(1).split() if listed else []

    def closure(name):
        rooms = {name}
        for other in direct[name]:
            rooms |= closure(other)
        return rooms

    return {name: closure(name) for name in direct}


def room_of(path):
    """The room of a path below src/. An op's folder has a pure side, <op>.h and spec files, and kernels; a folder of ops/
    without a spec is a part of kernels."""
    parts = path.parts
    if len(parts) == 1:
        return "session"  # the public header of the library
    if parts[0] != "ops":
        return parts[0]
    if len(parts) == 2:
        return "ops" if path.name in PURE_OPS_FILES else "kernels"
    has_spec = any((SRC / parts[0] / parts[1]).glob("spec*.cpp"))
    pure = path.stem.startswith("spec") or (has_spec and path.stem == parts[1])
    return "ops" if pure else "kernels"


def faults_of(path, rooms):
    relative = path.relative_to(SRC)
    room = room_of(relative)
    if room not in rooms:
        yield f"{relative}: no room {room} in CMakeLists.txt"
        return
    for kind, name in INCLUDE.findall(path.read_text()):
        if name.startswith("oneapi/") or name.startswith("dnnl"):
            if not (room == "kernels" and relative.parts[1] == "matmul"):
                yield f"{relative}: includes {name}; oneDNN is for ops/matmul alone"
        if re.match(r"(cuda|cublas|mma\.h)", name) and kind == "<" and room != "cuda":
            yield f"{relative}: includes <{name}>; CUDA is for room cuda alone"
        if kind == "<":
            if room in PURE and PHYSICAL_HEADERS.match(name):
                yield f"{relative}: is on the pure side but includes <{name}>"
            continue
        target = SRC / name
        if not target.is_file():
            yield f'{relative}: includes "{name}", which is not below src/'
            continue
        other = room_of(pathlib.Path(name))
        if other not in rooms[room]:
            yield f'{relative}: room {room} may not include "{name}" of room {other}'


def main():
    rooms = allowed_rooms()
    files = sorted(p for p in SRC.rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".cuh"})
    faults = [fault for path in files for fault in faults_of(path, rooms)]
    print("\n".join(faults))
    print(f"{len(files)} files, {len(faults)} faults")
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main())
