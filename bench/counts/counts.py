#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""Instructions of small calls, counted by callgrind, held to expected.txt.

  counts.py --record [PROGRAM]          counts and writes expected.txt; builds and runs that of preset dev unless given
  counts.py --run PROGRAM FOLDER        counts into FOLDER/counts.txt; with --complete it fails where the cases are not
                                        those of expected.txt
  counts.py --check CASE FOLDER         one case against expected.txt: at most 3 % more, and at most 10 % fewer, so that
                                        the file follows what the code has become; skipped for another toolchain
  counts.py --ratio CASE FOLDER         one case against another of the same run, per pair, whatever the toolchain
  counts.py --cases | --ratios          the names of expected.txt, of RATIOS

A line of both files is NAME, count, work (pairs of query and key, elements or (position, pair)s).
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

EXPECTED = pathlib.Path(__file__).with_name("expected.txt")
MORE, FEWER = 1.03, 0.90
FUNCTION = "posenc_counted"
# A policy may cost this much more per pair than the same call without one. Both edges of a window that cuts are
# computed in whole tiles, which is much of a call of 256 keys.
RATIOS = {
    "prefill_alibi": ("prefill_none", 1.05),
    "prefill_relative_bucket": ("prefill_none", 1.05),
    "prefill_kerple": ("prefill_none", 1.05),
    "prefill_toeplitz": ("prefill_none", 1.05),
    "prefill_window_512": ("prefill_none", 1.05),
    "prefill_window_256": ("prefill_none", 1.3),
    "prefill_softcap": ("prefill_none", 1.18),
    "prefill_shaw": ("prefill_none", 1.6),
}


def run(program):
    """(toolchain, {case: (count, work)}): callgrind writes a file each time that the counted function returns."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        text = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--toggle-collect={FUNCTION}", f"--dump-after={FUNCTION}",
             f"--callgrind-out-file={out}", program], capture_output=True, text=True, check=False)
        if text.returncode:
            sys.exit(f"{program}: code {text.returncode}\n{text.stdout}{text.stderr}")
        lines = text.stdout.splitlines()
        cases = [line.split() for line in lines[1:] if line]
        counts = {}
        for number, (name, work) in enumerate(cases, 1):
            dump = pathlib.Path(f"{out}.{number}").read_text(encoding="utf-8")
            counts[name] = (int(re.search(r"^totals: (\d+)$", dump, re.M).group(1)), int(work))
        return lines[0], counts


def save(path, toolchain, counts):
    rows = [f"{name} {count} {work}" for name, (count, work) in counts.items()]
    path.write_text("\n".join([toolchain] + rows) + "\n", encoding="utf-8")


def load(path):
    toolchain, *rows = path.read_text(encoding="utf-8").splitlines()
    return toolchain, {name: (int(count), int(work)) for name, count, work in (row.split() for row in rows)}


def record(program):
    if not program:
        root = EXPECTED.parents[2]
        for step in (["--preset", "dev"], ["--build", "--preset", "dev", "--target", "posenc_counts"]):
            subprocess.run(["cmake", *step], cwd=root, check=True, stdout=subprocess.DEVNULL)
        program = root / "build/dev/bench/counts/posenc_counts"
    toolchain, counts = run(program)
    before = load(EXPECTED)[1] if EXPECTED.is_file() else {}
    save(EXPECTED, toolchain, counts)
    for name, (count, _) in counts.items():
        change = f" ({count / before[name][0] - 1:+.2%})" if name in before else " (new)"
        print(f"{name} {count}{change}")


def run_into(out, program, complete):
    if not shutil.which("valgrind"):
        out.write_text("skipped: valgrind was not found\n", encoding="utf-8")
        print("skipped: counts.run: valgrind was not found")
        return 0
    toolchain, counts = run(program)
    save(out, toolchain, counts)
    print(f"{toolchain}: {len(counts)} cases")
    apart = set(counts) ^ set(load(EXPECTED)[1])
    if complete and apart:
        print(f"in the program or in expected.txt alone: {' '.join(sorted(apart))}; record with counts.py --record")
        return 1
    return 0


def measured(folder, what):
    """What --run left; ends the script where it counted nothing."""
    text = (pathlib.Path(folder) / "counts.txt").read_text(encoding="utf-8")
    if text.startswith("skipped: "):
        print(f"skipped: {what}: {text.strip().removeprefix('skipped: ')}")
        sys.exit(0)
    return load(pathlib.Path(folder) / "counts.txt")


def check(case, folder):
    toolchain, counts = measured(folder, f"counts.{case}")
    recorded, expected = load(EXPECTED)
    if toolchain != recorded:
        print(f"skipped: counts.{case}: recorded with {recorded}, counted with {toolchain}")
        return 0
    count, want = counts[case][0], expected[case][0]
    print(f"{case}: {count} instructions, expected {want}, {count / want - 1:+.2%}")
    if count > MORE * want:
        print(f"more than {MORE:.2f} of what is expected")
        return 1
    if count < FEWER * want:
        print(f"less than {FEWER:.2f} of what is expected: record the gain with counts.py --record")
        return 1
    return 0


def ratio(case, folder):
    _, counts = measured(folder, f"counts.ratio.{case}")
    base, limit = RATIOS[case]
    per_pair = [counts[name][0] / counts[name][1] for name in (case, base)]
    print(f"{case}: {per_pair[0]:.2f} instructions per pair, {base}: {per_pair[1]:.2f}, "
          f"ratio {per_pair[0] / per_pair[1]:.3f}, at most {limit}")
    return 0 if per_pair[0] <= limit * per_pair[1] else 1


def main(words):
    what, rest = words[0], words[1:]
    if what == "--record":
        return record(rest[0] if rest else None)
    if what == "--run":
        return run_into(pathlib.Path(rest[1]) / "counts.txt", rest[0], "--complete" in rest)
    if what in ("--cases", "--ratios"):
        print("\n".join(load(EXPECTED)[1] if what == "--cases" else RATIOS))
        return 0
    return {"--check": check, "--ratio": ratio}[what](*rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
