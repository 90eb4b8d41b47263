#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""compile_time.py [--compiler CXX] [--flags="..."] [--gate]: what a policy costs to compile.

Compiles attention with one policy and with four that differ in their bias, and a run-time policy with the masks of all
four. Prints seconds of processor time: the headers alone, the first policy, each further one. They are a report,
nothing is timed against a bound.
With --gate (clang only) it counts instead: -ftime-trace lists every instantiation, and a further policy may add at most
GATE of them: a hook that multiplies would add thousands.
"""
import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD = """#include <posenc/attention/attention.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/relative_bucket.hpp>
using view = posenc::view<float>;
#define CALL(name, ...) \\
  void name(view q, view k, view v, view o, const __VA_ARGS__& p) { posenc::attention(q, k, v, o, p); }
"""
POLICIES = [
    "CALL(f1, posenc::policy<posenc::causal>)",
    "CALL(f2, posenc::policy<posenc::alibi<float>, posenc::causal>)",
    "CALL(f3, posenc::policy<posenc::relative_bucket<float>, posenc::sliding_window>)",
    "CALL(f4, posenc::policy<posenc::softcap, posenc::alibi<float>, posenc::chunked>)",
]
RUN_TIME = "CALL(f5, posenc::run_time_policy<posenc::alibi<float>>)"
GATE = 1500


def processor_seconds():
    """Of the compilers so far: what others do on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compile_once(options, body, folder, trace=False):
    source = pathlib.Path(folder) / "unit.cpp"
    source.write_text(HEAD + "\n".join(body) + "\n")
    command = [options.compiler, "-std=c++20", *options.flags.split(), *(["-ftime-trace"] if trace else [])]
    start = processor_seconds()
    done = subprocess.run(
        [*command, f"-I{ROOT / 'include'}", "-c", str(source), "-o", str(source.with_suffix(".o"))],
        capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return processor_seconds() - start, source.with_suffix(".json")


def instantiations(trace):
    """Instantiated functions and classes, each as often as it happened."""
    events = json.loads(trace.read_text())["traceEvents"]
    return sum(e.get("name") in ("InstantiateFunction", "InstantiateClass") for e in events)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--flags", default="-O2")
    parser.add_argument("--gate", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.gate:
            options.flags += " -ftime-trace-granularity=0"
            one = instantiations(compile_once(options, POLICIES[:1], folder, True)[1])
            four = instantiations(compile_once(options, POLICIES, folder, True)[1])
            each = (four - one) / 3
            print(f"instantiations: {one} with one policy, {each:.0f} for each further one, at most {GATE}")
            sys.exit(0 if each <= GATE else 1)
        headers = compile_once(options, [], folder)[0]
        one = compile_once(options, POLICIES[:1], folder)[0]
        four = compile_once(options, POLICIES, folder)[0]
        run_time = compile_once(options, [RUN_TIME], folder)[0]
    print(f"headers alone     {headers:6.2f} s")
    print(f"first policy      {one - headers:6.2f} s")
    print(f"each further one  {(four - one) / 3:6.2f} s")
    print(f"run-time policy   {run_time - headers:6.2f} s, for every combination of masks and modifiers")


if __name__ == "__main__":
    main()
