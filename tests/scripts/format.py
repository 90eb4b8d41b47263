#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""format.py ROOT [--fix]: clang-format 14 agrees with every C++ file of the tree, or with --fix rewrites it.

Other versions of clang-format break lines elsewhere, so without version 14 the check is skipped by name.
"""
import pathlib
import re
import shutil
import subprocess
import sys


def find_formatter():
    for name in ("clang-format-14", "clang-format"):
        path = shutil.which(name)
        if path and re.search(r"version 14\.", subprocess.run([path, "--version"], capture_output=True, text=True).stdout):
            return path
    return None


def main(root, fix):
    formatter = find_formatter()
    if not formatter:
        print("skipped: tree.format: clang-format 14 was not found")
        return 0
    files = sorted(str(path) for folder in ("include", "tests", "bench", "examples")
                   for path in (root / folder).rglob("*.[ch]pp"))
    mode = ["-i"] if fix else ["--dry-run", "-Werror"]
    run = subprocess.run([formatter, "--style=file", *mode, *files], capture_output=True, text=True)
    print(run.stderr.replace(str(root) + "/", ""), end="")
    bad = {match for match in re.findall(r"^(.*?):\d+:\d+: error", run.stderr, re.M)}
    print(f"{len(files)} files, {len(bad)} to format" + ("; repair with: python3 tests/scripts/format.py . --fix" if bad else ""))
    return run.returncode if files else 1


sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), "--fix" in sys.argv))
