#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""odr_symbols.py NM OBJDUMP LD BASE.o HIGH.o: two levels of one program share no SIMD code.

BASE.o and HIGH.o are one source built for x86-64 and x86-64-v3. The linker keeps one copy of every weak symbol that both
define, so a function that means different lanes on each side is a fault that no diagnostic reports: one unit may size
memory for four lanes and the other fill it with eight. For every weak function of posenc that both define, none of
these may differ:
  - the functions keyed by an xsimd architecture that it calls,
  - whether it computes in 256-bit registers,
  - in simd and kernels, its arithmetic on whole registers.
Scalar code is encoded with a V prefix, and fused, at the higher level; that changes no layout and is allowed.
A function that calls `f<simd::default_arch>` is cured by a template parameter `class Arch = simd::default_arch`.
"""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

WEAK = "WVuw"
# Moves of 256 bits copy plain structs.
MOVES = re.compile(r"^v(mov|zero|insert|extract|xorp|pxor|broadcast|pbroadcast|lddqu)")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def in_one_section(ld, path, folder):
    """The object with all functions in one section: objdump sorts the symbols anew for each, half a minute in all."""
    script, merged = folder / "one.ld", folder / (pathlib.Path(path).parent.parent.name + ".o")
    script.write_text("SECTIONS { .text : { *(.text .text.*) } }", encoding="ascii")
    command = [ld, "-r", "--force-group-allocation", "-T", script, path, "-o", merged]
    return merged if subprocess.run(command, capture_output=True).returncode == 0 else path  # lld knows no such option


def weak_symbols(nm, path):
    plain = run(nm, path).splitlines()
    return {line.split()[-1] for line in plain if len(line.split()) >= 2 and line.split()[-2] in WEAK}


def bodies(objdump, path):
    """Per symbol its instructions, with the target of each call."""
    result, name = collections.defaultdict(list), None
    for line in run(objdump, "-dr", "--no-show-raw-insn", "-w", path).splitlines():
        head = re.match(r"^[0-9a-f]+ <(.+)>:$", line)
        if head:
            name = head.group(1)
            continue
        row = re.match(r"^\s*[0-9a-f]+:\s+(?!R_)(.*)$", line)
        if row and name:
            result[name].append(row.group(1).split("#")[0].strip())
        target = re.search(r"R_\w+(?:PLT32|PC32)\s+([^\s+-]+)", line)
        if target and name and result[name] and re.match(r"(call|jmp)", result[name][-1]):
            result[name][-1] = "call " + target.group(1)
    return result


def wide(body):
    rows = [row for row in body if re.search(r"%[yz]mm", row) and not MOVES.match(row)]
    return rows[0] if rows else None


def packed(body):
    """The arithmetic on whole registers, without the encoding prefix: what a kernel does to its lanes."""
    names = [re.sub(r"^v", "", row.split()[0]) for row in body]
    return [name for name in names if re.match(r"^(add|sub|mul|div|max|min|sqrt|cmp\w*|fn?m(add|sub)\d+)p[sd]$", name)]


def xsimd_calls(body):
    return {row.split()[1] for row in body if row.startswith("call ") and "5xsimd" in row}


def main(nm, objdump, ld, *objects):
    with tempfile.TemporaryDirectory() as folder:
        return compare(nm, objdump, *(in_one_section(ld, path, pathlib.Path(folder)) for path in objects))


def compare(nm, objdump, base, high):
    common = weak_symbols(nm, base) & weak_symbols(nm, high)
    left, right = bodies(objdump, base), bodies(objdump, high)
    demangled = dict(zip(sorted(common), run("c++filt", *sorted(common)).splitlines())) if common else {}
    faults, count = [], 0
    for symbol in sorted(common):
        name = demangled[symbol]
        if "posenc" not in name or symbol not in left or symbol not in right:
            continue
        count += 1
        kernel = re.match(r"^[^(]*\bposenc::(simd|kernels)::", name)
        calls = xsimd_calls(left[symbol]) ^ xsimd_calls(right[symbol])
        if calls:
            faults.append(f"{name}\n    one side only: call of {run('c++filt', min(calls)).strip()}")
        elif bool(wide(left[symbol])) != bool(wide(right[symbol])):
            faults.append(f"{name}\n    one side only: {wide(left[symbol]) or wide(right[symbol])}")
        elif kernel and packed(left[symbol]) != packed(right[symbol]):
            faults.append(f"{name}\n    differs: {' '.join(packed(left[symbol]))} | {' '.join(packed(right[symbol]))}")
    for fault in faults:
        print(fault)
    print(f"{count} functions of posenc in both objects, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main(*sys.argv[1:6]))
