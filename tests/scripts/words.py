#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""words.py ROOT: what no file of the tree may hold, and what each source must.

No absolute path of the machine it was written on, no mark of unfinished work, no hidden test, no check that can not
fail; a licence line first, at most 120 columns, and headers of at most 350 lines.
"""
import pathlib
import re
import sys

FOLDERS = ("include", "tests", "bench", "examples", "docs", ".ci", ".cmake")
TEXT = {".hpp", ".cpp", ".md", ".txt", ".cmake", ".in", ".py", ".sh", ".json", ""}
LICENCE = "Copyright (c) the posenc authors. SPDX-License-Identifier: MIT"
# Written in parts, so that this file passes.
EVERYWHERE = {
    r"(?<![\w.$}])/(?:" + "home|root|work|mnt|tmp" + r")/\w": "a path of one machine",
    r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b": "a mark of unfinished work",
}
# Data beside the tree is reached through POSENC_TEST_DATA, which this script sets.
OUTSIDE = re.compile(r"\.\./sha" + "red")
MAY_REACH_OUTSIDE = {"tests/scripts/stage.sh"}
IN_TESTS = {
    r"\bSUC" + r"CEED\(|\b(?:CHECK|REQUIRE)\((?:true|1)\)": "a check that can not fail",
    r'"\[(?:\.|!hide)[^"]*"': "a hidden test",
}


def main(root):
    files = [p for p in root.iterdir() if p.is_file()]
    files += [p for folder in FOLDERS for p in (root / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    faults = []
    for path in sorted(files):
        name = path.relative_to(root).as_posix()
        # Golden files and models are data of others, with their own words.
        data = name.startswith(("tests/golden/", "examples/models/"))
        if data or path.suffix not in TEXT or path.stat().st_size > 1 << 20:
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        rules = dict(EVERYWHERE)
        if name not in MAY_REACH_OUTSIDE:
            rules[OUTSIDE.pattern] = "a path outside the tree"
        if path.suffix in (".hpp", ".cpp"):
            if not lines or lines[0] != f"// {LICENCE}":
                faults.append(f"{name}:1: the first line must be `// {LICENCE}`")
            # clang-format leaves the layout of comments alone, so their width is checked here.
            faults += [f"{name}:{n}: longer than 120 columns" for n, line in enumerate(lines, 1) if len(line) > 120]
            if name.startswith("tests/"):
                rules.update(IN_TESTS)
            if name.startswith("include/") and len(lines) > 350:
                faults.append(f"{name}: {len(lines)} lines, a header has at most 350")
        for number, line in enumerate(lines, 1):
            faults += [f"{name}:{number}: {why}: {line.strip()[:100]}" for rule, why in rules.items() if re.search(rule, line)]
    for fault in faults:
        print(fault)
    print(f"{len(files)} files, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
