#!/usr/bin/env python3
"""Links between the documents lead to a file that is there, and to a heading of it. Usage: check_links.py [FOLDER]."""
import re
import sys
from pathlib import Path

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors_of(document: Path) -> set[str]:
    """As the sites that show Markdown make them of headings."""
    headings = HEADING.findall(document.read_text())
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def faults_of(document: Path) -> list[str]:
    faults = []
    for target in LINK.findall(document.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = document.parent / path if path else document
        if not file.exists():
            faults.append(f"{document}: {target} is not there")
        elif anchor and anchor not in anchors_of(file):
            faults.append(f"{document}: {target} is no heading of that file")
    return faults


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    documents = [*root.glob("*.md"), *root.glob("docs/**/*.md")]
    if not documents:
        print(f"{root} has no documents", file=sys.stderr)
        return 2
    faults = [fault for document in documents for fault in faults_of(document)]
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
