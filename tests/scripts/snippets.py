#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""snippets.py ROOT [--fix]: code shown in README.md and docs/ is code that is compiled.

A fenced block under the line `<!-- snippet: examples/foo_example.cpp#region -->` must equal what stands in that file
between `// [region]` and `// [/region]`, without its common indent; --fix copies it. A C++ block without such a line is
a fault, unless the line `<!-- no snippet: reason -->` stands there.
"""
import pathlib
import re
import sys
import textwrap

MARK = re.compile(r"^<!-- snippet: (\S+)#(\S+) -->$")
WAIVER = re.compile(r"^<!-- no snippet: .+ -->$")


def region(root, file, name):
    path = root / file
    if not path.is_file():
        return None, f"{file} does not exist"
    lines = path.read_text(encoding="utf-8").splitlines()
    stripped = [line.strip() for line in lines]
    begin, end = f"// [{name}]", f"// [/{name}]"
    if stripped.count(begin) != 1 or stripped.count(end) != 1:
        return None, f"{file} needs one line `{begin}` and one line `{end}`"
    body = lines[stripped.index(begin) + 1:stripped.index(end)]
    return textwrap.dedent("\n".join(body)).strip("\n").splitlines(), None


def main(root, fix):
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    faults, count = [], 0
    for page in (p for p in pages if p.is_file()):
        lines, result, i = page.read_text(encoding="utf-8").splitlines(), [], 0
        before = ""
        while i < len(lines):
            where = f"{page.relative_to(root)}:{i + 1}"
            fence = re.match(r"^(`{3,})(\S*)", lines[i])
            if not fence:
                if MARK.match(lines[i]) and (i + 1 == len(lines) or not lines[i + 1].startswith("```")):
                    faults.append(f"{where}: no fenced block follows this line")
                before = lines[i]
                result.append(lines[i])
                i += 1
                continue
            end = next((j for j in range(i + 1, len(lines)) if lines[j].strip() == fence.group(1)), None)
            if end is None:
                faults.append(f"{where}: the fenced block is not closed")
                result += lines[i:]
                break
            body, mark = lines[i + 1:end], MARK.match(before)
            if mark:
                count += 1
                wanted, fault = region(root, *mark.groups())
                if fault:
                    faults.append(f"{where}: {fault}")
                elif fix:
                    body = wanted
                elif body != wanted:
                    line = next((n for n, (a, b) in enumerate(zip(body, wanted)) if a != b), min(len(body), len(wanted)))
                    faults.append(f"{where}: line {line + 1} of the block differs from {mark.group(1)}#{mark.group(2)}")
            elif fence.group(2) in ("cpp", "c++", "cxx") and not WAIVER.match(before):
                faults.append(f"{where}: a C++ block needs `<!-- snippet: file#region -->` above it")
            result += [lines[i], *body, lines[end]]
            before, i = "", end + 1
        if fix:
            page.write_text("\n".join(result) + "\n", encoding="utf-8")
    for fault in faults:
        print(fault)
    print(f"{count} snippets, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), "--fix" in sys.argv))
