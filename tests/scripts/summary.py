#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""summary.py BUILD_FOLDER...: counts what the last ctest run of each folder did; its last line is `N passed, N failed`.

A Catch2 program counts with its test cases, any other test as one. Skipped tests and cases count as neither passed nor
failed and are listed by name. The exit code is 1 if anything failed or nothing ran.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

ALL_PASSED = re.compile(r"All tests passed \((\d+) assertions? in (\d+) test cases?\)")
CASES = re.compile(r"^test cases:\s*(\d+)(.*)$", re.M)
CONFORMANCE = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)


def part(text, word):
    match = re.search(rf"(\d+) {word}", text)
    return int(match.group(1)) if match else 0


def main(folders):
    passed = failed = cases = assertions = programs = other = 0
    skipped, bad = set(), []
    for folder in folders:
        report = pathlib.Path(folder) / "ctest.xml"
        if not report.is_file():
            bad.append(f"{folder}: no tests ran")
            failed += 1
            continue
        for test in xml.parse(report).getroot().iter("testcase"):
            name, status = test.get("name"), test.get("status")
            output = test.findtext("system-out") or ""
            left_out = set(re.findall(r"^skipped: (.*)$", output, re.M))
            skipped |= {line if status != "run" or line.startswith(name) else f"{name}: {line}" for line in left_out}
            whole, some = ALL_PASSED.search(output), CASES.search(output)
            for done, wrong, left in CONFORMANCE.findall(output):
                print(f"{name}: {done} cases passed, {wrong} failed, {left} skipped")
            if status == "run" and whole:
                programs, assertions, cases = programs + 1, assertions + int(whole.group(1)), cases + int(whole.group(2))
                passed += int(whole.group(2)) - len(left_out)
            elif some:
                good, wrong = part(some.group(2), "passed"), part(some.group(2), "failed")
                if status == "fail":
                    wrong = max(wrong, 1)
                    bad.append(name)
                programs, cases = programs + 1, cases + int(some.group(1))
                passed, failed = passed + max(good - len(left_out), 0), failed + wrong
            elif status == "run":
                other, passed = other + 1, passed + 1
            elif status == "fail":
                other, failed = other + 1, failed + 1
                bad.append(name)
            elif f"{name}" not in " ".join(skipped):
                skipped.add(f"{name}: {status}")
    # Levels of one program repeat what they skip.
    for line in sorted({re.sub(r"^(\w+)\.x86-64\S*: ", r"\1: ", line) if line.count(": ") > 1 else line for line in skipped}):
        print(f"skipped: {line}")
    for line in bad:
        print(f"failed: {line}")
    print(f"{cases} cases with {assertions} assertions in {programs} Catch2 programs, {other} other tests")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


sys.exit(main(sys.argv[1:]))
