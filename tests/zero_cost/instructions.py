#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""instructions.py OBJDUMP FILE.o FIRST SECOND [--different]: two functions of an object are the same machine code.

Compared are the mnemonics in order, without padding and addresses. With --different they must not be the same.
"""
import itertools
import re
import subprocess
import sys


def mnemonics(objdump, path, function):
    text = subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", "-w", path], capture_output=True, text=True, check=True).stdout
    found, inside = [], False
    for line in text.splitlines():
        head = re.match(r"^[0-9a-f]+ <(.+)>:$", line)
        if head:
            inside = head.group(1) == function
            continue
        code = re.match(r"^\s+[0-9a-f]+:\s+(.+)$", line)
        if inside and code:
            words = code.group(1).split()
            while words and re.match(r"^(cs|ds|data16|notrack|bnd|rep|repz|\{.*\})$", words[0]):
                words.pop(0)
            if words and not re.match(r"^(nop|xchg$)", words[0]):
                found.append(words[0])
    if not found:
        sys.exit(f"{path}: no function {function}")
    return found


def main():
    objdump, path, first, second = sys.argv[1:5]
    different = sys.argv[5:] == ["--different"]
    a, b = mnemonics(objdump, path, first), mnemonics(objdump, path, second)
    print(f"{first}: {len(a)} instructions, {second}: {len(b)}")
    if a == b:
        sys.exit(1 if different else 0)
    for i, (x, y) in enumerate(itertools.zip_longest(a, b, fillvalue="(end)")):
        if x != y:
            print(f"instruction {i}: {x} in {first}, {y} in {second}")
            break
    sys.exit(0 if different else 1)


if __name__ == "__main__":
    main()
