#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""programs.py CASE PROGRAM: runs an example program and checks its exit code, its words and the file it writes."""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

ENCODERS = ["sinusoidal", "learned", "relative_bucket", "alibi", "rope", "nope", "irope"]
LENGTHS = ["96", "192", "384", "768"]
HEADINGS = [
    "What breaks when the encoding of a trained model is swapped",
    "These losses rank nothing",
    "The seven encoders on this machine",
]
faults = []


def check(holds, what):
    if not holds:
        faults.append(what)


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=850)


def keys_of(what, entry, wanted):
    check(set(entry) == set(wanted.split()), f"keys of {what}: {sorted(entry)}")


def is_number(value, least):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= least


def refused(program, words, *arguments):
    """Exit code 2, nothing on stdout, and one line on stderr that starts with the program and holds the words."""
    r = run(program, *arguments)
    name = pathlib.Path(program).name
    said = f"{name} {' '.join(map(str, arguments))}: exit code {r.returncode}, {r.stdout!r}, {r.stderr!r}"
    check(r.returncode == 2 and r.stdout == "", said)
    check(r.stderr.count("\n") == 1 and r.stderr.startswith(f"{name}: ") and r.stderr.endswith("\n"), said)
    check(words in r.stderr, f"{said}; wanted {words!r}")


def compare_tables(program, folder):
    # The last tenth of 10 000 bytes holds four windows of 96 and of 192 characters, not of 384 and 768.
    text = folder / "text.txt"
    line = "You may convey verbatim copies of the work in any medium, provided that you keep every notice of it.\n"
    text.write_text((line * 100)[:10000], encoding="ascii")
    report = folder / "report.json"
    r = run(program, "--text", text, "--json", report)
    check(r.returncode == 0, f"exit code {r.returncode}: {r.stderr}")
    for heading in HEADINGS:
        check(heading in r.stdout, f"not printed: {heading}")
    check("n/a  the text is too short for 4 windows of this length" in r.stdout, "not printed: what n/a means")
    if r.returncode != 0:
        return
    found = json.loads(report.read_text(encoding="utf-8"))
    keys_of("the file", found, "swapped measured seconds")
    check(is_number(found["seconds"], 0), f"seconds: {found['seconds']}")

    swapped = found["swapped"]
    keys_of("swapped", swapped, "ranks text text_bytes held_out_bytes encodings prompt sample_of_the_model")
    check((swapped["text_bytes"], swapped["held_out_bytes"]) == (10000, 1000), "sizes of the text")
    check(swapped["text"] == str(text), "name of the text")
    check(len(swapped["encodings"]) == 9, f"{len(swapped['encodings'])} encodings")
    for entry in swapped["encodings"]:
        keys_of("an encoding", entry, "encoding trained losses")
        name, losses = entry["encoding"], entry["losses"]
        keys_of(name, losses, " ".join(LENGTHS))
        untrained = name in ("learned table", "T5 buckets")
        check(entry["trained"] is not untrained, f"{name}: trained is {entry['trained']}")
        for length in LENGTHS:
            fits = not untrained and int(length) <= 192
            right = is_number(losses[length], 0) if fits else losses[length] is None
            check(right, f"{name}: loss at {length} is {losses[length]}")
            check(not fits or f"{losses[length]:.4f}" in r.stdout, f"{name}: loss at {length} is not printed")

    measured = found["measured"]
    keys_of("measured", measured,
            "cpu instructions compiler heads head_dim prefill_keys decode_keys rounds encoders")
    check([e["encoder"] for e in measured["encoders"]] == ENCODERS, "names of the encoders")
    for entry in measured["encoders"]:
        name = entry["encoder"]
        keys_of(name, entry, "encoder position_enters_at relative_relations length_limit options parameters table_bytes "
                             "work ns_per_token prefill_us prefill_ratio decode_us decode_ratio")
        for key in ("prefill_us", "prefill_ratio", "decode_us", "decode_ratio"):
            check(is_number(entry[key], 0) and entry[key] > 0, f"{name}: {key} is {entry[key]}")
        for key in ("parameters", "table_bytes"):
            check(isinstance(entry[key], int) and entry[key] >= 0, f"{name}: {key} is {entry[key]}")
        idle = name == "nope"
        check(entry["ns_per_token"] is None if idle else is_number(entry["ns_per_token"], 0),
              f"{name}: ns_per_token is {entry['ns_per_token']}")


def compare_refusals(program, folder):
    absent = folder / "absent.txt"
    short = folder / "short.txt"
    short.write_text("a" * 3830, encoding="ascii")  # its last tenth is one byte short of four windows of 96
    refused(program, f"{absent}: is no file", "--text", absent)
    refused(program, f"{folder}: is no file", "--text", folder)
    refused(program, "has 383 bytes, at least 384 are needed", "--text", short)
    refused(program, "cannot be written", "--json", folder / "absent" / "report.json")
    refused(program, "unknown option --colour", "--colour")
    refused(program, "unknown option text.txt", "text.txt")
    refused(program, "--text needs a value", "--text")
    r = run(program, "--help")
    check(r.returncode == 0 and r.stdout.startswith("usage: compare") and r.stderr == "", "--help")


def llama2c_story(program, folder):
    data = os.environ.get("POSENC_TEST_DATA", "")
    model = pathlib.Path(data) / "models" / "stories260K"
    if not data or not (model / "stories260K.bin").is_file():
        print("skipped: programs.llama2c_story: models/stories260K is not in POSENC_TEST_DATA")
        return
    files = [model / "stories260K.bin", model / "tok512.bin"]
    first = "Once upon a time, there was a little girl named Lily."
    r = run(program, *files, "--tokens", 30)
    check(r.returncode == 0 and r.stderr == "", f"exit code {r.returncode}: {r.stderr}")
    check(r.stdout.startswith(first + " She loved to play outside"), f"printed {r.stdout!r}")
    # The beginning given as a prompt, the story goes on as before.
    r = run(program, *files, "--prompt", "Once upon a time", "--tokens", 20)
    check(r.returncode == 0 and r.stdout.startswith(first), f"with a prompt: {r.stdout!r}")
    refused(program, "unknown option --colour", *files, "--colour")
    refused(program, "--tokens needs a number of at least 1", *files, "--tokens", 0)


def llama2c_refusals(program, folder):
    absent = folder / "absent.bin"
    refused(program, f"{absent}: cannot be opened", absent, absent)
    refused(program, "a model and a tokenizer are needed")
    refused(program, "unknown option --colour", "--colour")
    r = run(program, "--help")
    check(r.returncode == 0 and r.stdout.startswith("usage: llama2c") and r.stderr == "", "--help")


def model_refusals(program, folder):
    refused(program, "cannot be opened", "--model", folder)
    refused(program, "--model needs a value", "--model")
    refused(program, "unknown option --colour", "--colour")
    r = run(program, "--help")
    name = pathlib.Path(program).name
    check(r.returncode == 0 and r.stdout.startswith(f"usage: {name}") and r.stderr == "", "--help")


def main(case, program):
    cases = {f.__name__: f for f in (compare_tables, compare_refusals, llama2c_story, llama2c_refusals, model_refusals)}
    with tempfile.TemporaryDirectory() as folder:
        cases[case](program, pathlib.Path(folder))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main(*sys.argv[1:]))
