#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""compile_fail.py SOURCE CASE -- COMPILER FLAGS...

Case 0 of SOURCE must compile. Any other case must be refused with a message that matches the regular expression of
its line `// CASE n: regex`, so that a typing error does not pass as a refusal.
"""
import re
import subprocess
import sys


def main():
    source, case = sys.argv[1], int(sys.argv[2])
    command = sys.argv[sys.argv.index("--") + 1:] + [f"-DCASE={case}", source]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    if case != 0 and not re.search(rf"^#\s*(?:el)?if\b.*\bCASE == {case}\b", text, re.M):
        return f"{source}: case {case} has a line `// CASE {case}: ...` but no `#if CASE == {case}`"
    run = subprocess.run(command, capture_output=True, text=True)
    message = run.stdout + run.stderr
    if case == 0:
        return None if run.returncode == 0 else f"{message}\n{source}: case 0 must compile"
    pattern = re.search(rf"^// CASE {case}: (.*)$", text, re.M).group(1).strip()
    if run.returncode == 0:
        return f"{source}: case {case} compiled, but must be refused with a message that matches: {pattern}"
    if not re.search(pattern, message):
        return f"{message}\n{source}: case {case} was refused, but no message matches: {pattern}"
    print(f"case {case} is refused: {re.search('.*' + pattern + '.*', message).group(0).strip()}")
    return None


sys.exit(main())
