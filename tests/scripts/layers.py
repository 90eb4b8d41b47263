#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""layers.py ROOT: who may include what.

A folder of include/posenc includes itself and the folders before it in LAYERS; config.hpp and version.hpp are open to
all, posenc.hpp to none. THIRD_PARTY names the only places that may include a library. posenc.hpp includes every public
header except those that need a library of OPTIONAL, and declares nothing. tests/reference includes nothing of posenc.
"""
import pathlib
import re
import sys

LAYERS = ["core", "math", "simd", "kernels", "encoders", "attention", "models"]
FREE = {"config.hpp", "version.hpp"}
THIRD_PARTY = {
    "xsimd/": lambda path: path.startswith("simd/"),
    "Eigen/": lambda path: path == "core/eigen.hpp" or path.split("/")[0] in ("encoders", "attention", "models"),
    "unsupported/Eigen/": lambda path: path == "core/eigen.hpp",
    "nlohmann/": lambda path: path.startswith("models/"),
    "oneapi/tbb/": lambda path: path == "core/parallel_tbb.hpp",
    "omp.h": lambda path: path == "core/parallel_openmp.hpp",
}
# Libraries that a user of posenc.hpp need not have.
OPTIONAL = ("nlohmann/", "oneapi/tbb/", "omp.h")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
# Intrinsics come with the compiler; everything else without an extension is the standard library.
INTRINSICS = re.compile(r"^(\w*intrin|arm_\w+)\.h$")


def strip_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def main(root):
    base = root / "include" / "posenc"
    headers = {str(p.relative_to(base)): strip_comments(p.read_text(encoding="utf-8")) for p in base.rglob("*.hpp")}
    faults = []
    graph = {}

    for path, text in sorted(headers.items()):
        folder = path.split("/")[0] if "/" in path else ""
        if folder and folder not in LAYERS:
            faults.append(f"{path}: folder {folder}/ is not in the table of layers")
            continue
        if "#pragma once" not in text:
            faults.append(f"{path}: has no #pragma once")
        graph[path] = set()
        for quote, target in INCLUDE.findall(text):
            if quote == '"':
                faults.append(f'{path}: writes "{target}", own headers are included as <posenc/...>')
            if target.startswith("posenc/"):
                inner = target[len("posenc/"):]
                if inner not in headers:
                    faults.append(f"{path}: includes {target}, which does not exist")
                    continue
                graph[path].add(inner)
                if path == "posenc.hpp" or inner in FREE:
                    continue
                other = inner.split("/")[0] if "/" in inner else ""
                if not other:
                    faults.append(f"{path}: includes {target}, which is for users only")
                elif not folder or LAYERS.index(other) > LAYERS.index(folder):
                    faults.append(f"{path}: includes {target}, but {folder or path} stands above {other} in the layers")
                continue
            library = next((name for name in sorted(THIRD_PARTY, key=len, reverse=True) if target.startswith(name)), None)
            if library:
                if not THIRD_PARTY[library](path):
                    faults.append(f"{path}: includes {target}, which this place may not")
            elif INTRINSICS.match(target):
                if folder != "simd":
                    faults.append(f"{path}: includes {target}, only simd/ may use intrinsics")
            elif "/" in target or "." in target:
                faults.append(f"{path}: includes {target}, which is neither posenc, the standard library nor a known library")

    def needs_optional(path, seen):
        if path in seen:
            return False
        seen.add(path)
        if any(target.startswith(OPTIONAL) for _, target in INCLUDE.findall(headers[path])):
            return True
        return any(needs_optional(inner, seen) for inner in graph.get(path, ()))

    if "posenc.hpp" in headers:
        umbrella = headers["posenc.hpp"]
        included = {t[len("posenc/"):] for _, t in INCLUDE.findall(umbrella) if t.startswith("posenc/")}
        for path in sorted(headers):
            if path == "posenc.hpp":
                continue
            if needs_optional(path, set()):
                if path in included:
                    faults.append(f"posenc.hpp: includes {path}, which needs a library that users may not have")
            elif path not in included:
                faults.append(f"posenc.hpp: does not include <posenc/{path}>")
        rest = [l for l in umbrella.splitlines() if l.strip() and not re.match(r"\s*#\s*(pragma once|include\b)", l)]
        if rest:
            faults.append(f"posenc.hpp: declares nothing, but holds: {rest[0].strip()}")
    elif headers.keys() - FREE:
        faults.append("posenc.hpp: is missing")

    for path in sorted((root / "tests" / "reference").rglob("*.[ch]pp")):
        text = strip_comments(path.read_text(encoding="utf-8"))
        if any(target.startswith("posenc/") for _, target in INCLUDE.findall(text)):
            faults.append(f"{path.relative_to(root)}: an oracle includes no header of posenc")

    for fault in faults:
        print(fault)
    print(f"{len(headers)} headers, {len(faults)} faults")
    return 1 if faults or not headers else 0


sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
