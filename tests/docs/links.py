#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""links.py ROOT: every relative link of README.md and docs/ leads to a file, every page is reached from README.md, and
every header that a page or an `/// Example` line of a header names exists.
"""
import pathlib
import re
import sys

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
HEADER = re.compile(r"`((?:posenc/)?(?:core|math|simd|kernels|encoders|attention|models)/[a-z0-9_]+\.hpp)`")
CODE = re.compile(r"^```.*?^```$", re.M | re.S)
EXAMPLE = re.compile(r"^/// Example\s+(\S+)", re.M)


def main(root):
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    faults, leads_to = [], {}
    for page in pages:
        text = CODE.sub("", page.read_text(encoding="utf-8"))
        name = page.relative_to(root)
        targets = [(page.parent / link).resolve() for link in LINK.findall(text) if "://" not in link]
        faults += [f"{name}: links to {t.relative_to(root)}, which does not exist" for t in targets if not t.exists()]
        for header in HEADER.findall(text):
            if not (root / "include" / "posenc" / header.removeprefix("posenc/")).is_file():
                faults.append(f"{name}: names {header}, which does not exist")
        leads_to[page] = targets
    seen, open_pages = set(), [root / "README.md"]
    while open_pages:
        page = open_pages.pop()
        if page not in seen:
            seen.add(page)
            open_pages += [t for t in leads_to[page] if t in leads_to]
    faults += [f"{page.relative_to(root)}: no page links to it" for page in pages if page not in seen]
    for header in sorted((root / "include").rglob("*.hpp")):
        for example in EXAMPLE.findall(header.read_text(encoding="utf-8")):
            if not (root / example).is_file():
                faults.append(f"{header.relative_to(root)}: names {example}, which does not exist")
    for fault in faults:
        print(fault)
    print(f"{len(pages)} pages, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
