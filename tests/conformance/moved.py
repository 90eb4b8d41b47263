#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""moved.py PROGRAM GOLDEN: posenc_conformance must notice a wrong number.

Every case that PROGRAM passes is written again with one expected value of one output moved to 2.1 times its tolerance,
once for each output and compatibility mode; PROGRAM must fail each of them, and a file it can not read.
"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile


def lines_of(program, path):
    run = subprocess.run([program, str(path)], stdout=subprocess.PIPE, text=True, check=False)
    return run.returncode, run.stdout.splitlines()


def moved(case, output, peer):
    """The case with the middle value of `output` out of tolerance, or None where it has no such tolerance."""
    tolerance = case["tolerance"][output]
    if peer and "abs_peer_arithmetic" not in tolerance:
        return None
    case = copy.deepcopy(case)
    data = case["expected"][output]["data"]
    middle = len(data) // 2
    value = data[middle]
    if isinstance(value, str):
        data[middle] = 0.0
    else:
        allowed = (tolerance["abs_peer_arithmetic"] if peer else tolerance["abs"]) + tolerance["rel"] * abs(value)
        data[middle] = value + (2.1 * allowed or max(abs(value), 1) * 1e-5)
    case["name"] = f"{case['name']}@{output}" + ("@peer" if peer else "")
    return case


def main(program, golden):
    count, faults = 0, []
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "moved.json"
        for path in sorted(pathlib.Path(golden).rglob("*.json")):
            file = json.loads(path.read_text())
            passed = {line.split()[2] for line in lines_of(program, path)[1] if line.startswith("ok ")}
            cases = [moved(case, output, peer) for case in file["cases"] if case["name"] in passed
                     for output in case["expected"] for peer in (False, True)]
            file["cases"] = [case for case in cases if case]
            if not file["cases"]:
                continue
            target.write_text(json.dumps(file))
            code, lines = lines_of(program, target)
            caught = {line.split()[2] for line in lines if line.startswith("FAIL ")}
            names = {case["name"] for case in file["cases"]}
            faults += [f"{path.name}: {name} passed" for name in sorted(names - caught)]
            faults += [f"{path.name}: exit code {code}"] if code != 1 else []
            count += len(names)
        for name, text in (("broken.json", "{"), ("schema.json", '{"schema": 2, "op": "t5.bias", "cases": []}'),
                           ("empty.json", '{"schema": 1, "op": "t5.bias", "cases": []}')):
            target = pathlib.Path(folder) / name
            target.write_text(text)
            faults += [f"{name}: no failure"] if lines_of(program, target)[0] != 1 else []
    for fault in faults:
        print(fault)
    print(f"{count} moved values, {len(faults)} not noticed")
    return 1 if faults or count == 0 else 0


sys.exit(main(sys.argv[1], sys.argv[2]))
