#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""report.py RESULTS [--facts TEXT] [--write PAGE]: the ratios that posenc is held to, from what report.sh measured.

RESULTS holds a folder per round, and in it PROGRAM.json of every program, as Google Benchmark writes it; a peer that
was not found has a line `peer=NAME absent` in RESULTS/absent. counts.txt beside them holds instruction counts. The
ratio of two rows is that of their medians within a round; given are the median over the rounds, and the least and
largest of them. With --write the tables replace what PAGE has between its two report markers. The exit code is 1 where
a row is missing, and 0 whether the targets are met or not.
"""
import json
import pathlib
import re
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent / "counts"))
import counts  # noqa: E402

PEERS = {"ggml": "ggml", "xnnpack": "XNNPACK", "onnxruntime": "ONNX Runtime", "torch": "PyTorch", "counts": "valgrind"}
TOKENS = (1, 16, 512, 2048)
LAYOUTS = ("half_split", "interleaved")
BEGIN, END = "<!-- report: begin -->", "<!-- report: end -->"


class Target:
    """`top / bottom`, each (program, row, counter), at least or at most `limit`; no bottom: `top` itself."""

    def __init__(self, case, sign, limit, top, bottom=None, unit=""):
        self.case, self.sign, self.limit, self.top, self.bottom, self.unit = case, sign, limit, top, bottom, unit

    def rows(self):
        return [row for row in (self.top, self.bottom) if row]

    def goal(self):
        return "" if self.limit is None else f"{'&ge;' if self.sign == '>=' else '&le;'} {self.limit:g}{self.unit}"

    def met(self, value):
        if self.limit is None:
            return ""
        return "yes" if (value >= self.limit if self.sign == ">=" else value <= self.limit) else "**no**"


def counted(n, one, more=None):
    return f"{n} {one if n == 1 else more or one + 's'}"


def rotation(row):
    return ("rotation", row, "ns_per_element")


def prefill(policy, keys, dim, program="attention"):
    return (program, f"attention/prefill/{policy}/8_heads/{keys}/{dim}", "gflops")


def kernel(dim, counter="gflops"):
    return ("attention", f"kernels/multiply_block/96_rows/128_keys/{dim}/manual_time", counter)


def decode(kv_heads, storage="float", layout="head_major", program="attention", counter="gb_per_s"):
    return (program, f"attention/decode/none/32_heads/{kv_heads}_kv_heads/4096/128/{storage}/{layout}", counter)


def sections():
    """(title, note, targets) in the order of the page."""
    yield "Rotation against its floor", (
        "Time over that of the same bytes multiplied in place by a constant; 32 heads of 128 channels, table given."), [
            Target(f"{layout}, float, {counted(t, 'token')}", "<=", 1.3 if t == 2048 else 2,
                   rotation(f"encoders/rope_table/{layout}/float/{t}"), rotation(f"floor/scale_in_place/float/{t}"))
            for layout in LAYOUTS for t in TOKENS]
    yield "16-bit rotation against float", "Time over that of float at 2048 tokens.", [
        Target(f"{layout}, {storage}", "<=", 0.7, rotation(f"encoders/rope_table/{layout}/{storage}/2048"),
               rotation(f"encoders/rope_table/{layout}/float/2048"))
        for layout in LAYOUTS for storage in ("half", "bfloat16")]
    yield "Rows of cos and sin", "Exact angles, per (position, pair).", [
        Target(f"{counted(rows, 'row')} of 64 pairs", "<=", 6,
               rotation(f"encoders/rope/cos_sin/float/rows/{rows}"), unit=" ns") for rows in (1, 2048)]

    def times_faster(case, limit, peer, theirs, ours):
        return Target(f"{PEERS[peer]}, {case}", ">=", limit, (peer, theirs, "ns_per_element"), rotation(ours))

    yield "Rotation against others", "How many times faster; float, 32 heads of 128 channels.", [
        times_faster(f"{layout}, {counted(t, 'token')}, {how}", 2.5 if t == 2048 else limit, "ggml",
                     f"encoders/rope/{layout}/float/{t}", f"encoders/{ours}/{layout}/float/{t}")
        for how, ours, limit in (("table given", "rope_table", 8), ("angles inside", "rope", 4))
        for layout in LAYOUTS for t in TOKENS
    ] + [
        times_faster(f"{layout}, {counted(t, 'token')}", 2, "onnxruntime", f"encoders/rope_table/{layout}/float/{t}",
                     f"encoders/rope_table/{layout}/float/{t}") for layout in LAYOUTS for t in TOKENS
    ] + [
        times_faster(f"half_split, {counted(t, 'token')}", limit, peer, f"encoders/rope_table/half_split/float/{t}",
                     f"encoders/rope_table/half_split/float/{t}")
        for peer, limit in (("xnnpack", 1.1), ("torch", None)) for t in TOKENS]

    yield "Prefill against the machine", (
        "Rates. Attention is causal with 8 heads, and only visible pairs count. The register kernel multiplies packed "
        "panels; the peak of the multiply-add units is taken between its repetitions."), [
            Target(f"register kernel of the peak, dim {dim}", ">=", 0.8, kernel(dim, "of_peak")) for dim in (64, 128)
        ] + [
            Target(f"attention of the register kernel, {n} keys, dim {dim}", ">=", limit, prefill("none", n, dim),
                   kernel(dim))
            for n, dim, limit in ((512, 64, 0.7), (512, 128, 0.7), (2048, 64, 0.78), (2048, 128, 0.85))
        ] + [
            Target(f"attention of Eigen's sgemm of 1024, 2048 keys, dim {dim}", ">=", None, prefill("none", 2048, dim),
                   ("attention", "floor/eigen_sgemm_1024/float", "gflops")) for dim in (64, 128)]

    yield "Prefill against others", "How many times faster; causal, 8 heads.", [
        Target(f"PyTorch, no bias, 2048 keys, dim {dim}", ">=", limit, prefill("none", 2048, dim),
               prefill("none", 2048, dim, "torch")) for dim, limit in ((64, 1.1), (128, 1))
    ] + [
        Target(f"PyTorch with a materialised bias, {ours}, 2048 keys, dim {dim}", ">=", limit, prefill(ours, 2048, dim),
               prefill("materialised_bias", 2048, dim, "torch"))
        for ours in ("alibi", "relative_bucket") for dim, limit in ((64, 2), (128, 1.5))
    ] + [
        Target(f"ggml, {policy}, {n} keys, dim {dim}", ">=", 5, prefill(policy, n, dim),
               prefill(policy, n, dim, "ggml"))
        for policy in ("none", "alibi") for n in (512, 2048) for dim in (64, 128)
    ] + [
        Target(f"ONNX Runtime, {n} keys, dim {dim}", ">=", 2.5, prefill("none", n, dim),
               prefill("none", n, dim, "onnxruntime"))
        for n in (512, 2048) for dim in (64, 128)
    ] + [
        Target(f"PyTorch, no bias, 512 keys, dim {dim}", ">=", None, prefill("none", 512, dim),
               prefill("none", 512, dim, "torch"))
        for dim in (64, 128)]

    yield "Cost of a policy", "Time per visible pair over that without one; 2048 keys.", [
        Target(f"{policy}, dim {dim}", "<=", limit, prefill("none", 2048, dim), prefill(policy, 2048, dim))
        for policy, limit in (("alibi", 1.1), ("relative_bucket", 1.1), ("kerple", 1.1), ("toeplitz", 1.1),
                              ("window_1024", 1.1), ("prefix_512", 1.1), ("softcap", 1.18), ("shaw", 1.6),
                              ("deberta", 1.6), ("transformer_xl", 1.8))
        for dim in (64, 128)]

    yield "Instructions of a policy", (
        "Per visible pair over those without one, counted by callgrind: one head, 512 queries and keys, dim 64."), [
            Target(case.removeprefix("prefill_"), "<=", limit, ("counts", case, "per_pair"),
                   ("counts", base, "per_pair"))
            for case, (base, limit) in counts.RATIOS.items()]

    window_work = 4096 * 256 - 256 * 255 / 2
    causal_work = 4096 * 4097 / 2
    yield "Sliding window", "A window of 256 of 4096 keys, times faster than the whole causal call.", [
        Target(f"dim {dim}", ">=", 6, prefill("window_256", 4096, dim) + (causal_work / window_work,),
               prefill("none", 4096, dim)) for dim in (64, 128)]

    bandwidth = ("attention", "floor/read_bandwidth/float", "gb_per_s")
    yield "Decode against the read bandwidth", (
        "Bytes of keys and values per second over what a plain loop reads; one query, 32 heads, 4096 keys, dim 128."), [
            Target(f"{counted(group, 'query', 'queries')} per key head, {layout}", ">=", limit,
                   decode(32 // group, layout=layout), bandwidth)
            for group, limit in ((1, 0.8), (4, 0.65)) for layout in ("head_major", "token_major")]
    yield "16-bit caches against float", "How many times faster.", [
        Target(f"{storage}, {counted(group, 'query', 'queries')} per key head, {layout}", ">=", 1.6,
               decode(32 // group, storage, layout) + (2,), decode(32 // group, layout=layout))
        for storage in ("half", "bfloat16") for group in (1, 4) for layout in ("head_major", "token_major")]
    yield "Decode against others", "How many times faster; head_major.", [
        Target(f"{PEERS[peer]}, {storage}, {counted(32 // kv_heads, 'query', 'queries')} per key head", ">=", None,
               decode(kv_heads, storage), decode(kv_heads, storage, program=peer))
        for peer, storage in (("ggml", "float"), ("ggml", "half"), ("torch", "float")) for kv_heads in (32, 8)]

    def threads(n, dim):
        return ("attention", f"attention/prefill_threads/none/8_heads/{n}/2048/{dim}/real_time", "gflops")

    yield "Two threads", "Times faster than one, by the clock on the wall; 2048 keys.", [
        Target(f"dim {dim}", ">=", 1.85, threads(2, dim), threads(1, dim)) for dim in (64, 128)]

    def subnormal(where):
        return ("attention", f"attention/subnormal/{where}/8_heads/1024/64", "gflops")

    yield "Numbers below the normal range", "Time over that of the same call with normal numbers.", [
        Target(where, "<=", 1.2, subnormal("none"), subnormal(where)) for where in ("values", "weights")]


class Results:
    def __init__(self, folder):
        self.rounds, self.missing = [], set()
        listed = folder / "absent"
        self.absent = set(re.findall(r"^peer=(\w+) absent$", listed.read_text() if listed.is_file() else "", re.M))
        counted = folder / "counts.txt"
        if counted.is_file() and counted.read_text(encoding="utf-8").startswith("skipped: "):
            self.absent.add("counts")
        elif counted.is_file():
            counted = {("counts", name): [{"per_pair": count / work}]
                       for name, (count, work) in counts.load(counted)[1].items()}
        for path in sorted(p for p in folder.iterdir() if p.is_dir()):
            rows = dict(counted) if isinstance(counted, dict) else {}
            for file in path.glob("*.json"):
                for row in json.loads(file.read_text(encoding="utf-8"))["benchmarks"]:
                    if row["run_type"] == "iteration" and not row.get("error_occurred"):
                        rows.setdefault((file.stem, row["run_name"]), []).append(row)
            self.rounds.append(rows)
        if not self.rounds:
            sys.exit(f"{folder}: no results")

    def value(self, rows, wanted):
        """The median of a row in one round; a fourth part of `wanted` is a factor on it."""
        program, name, counter, *factor = wanted
        found = [row[counter] for row in rows.get((program, name), []) if counter in row]
        if not found:
            self.missing.add(f"{program}: {name} ({counter})")
            return None
        return statistics.median(found) * (factor[0] if factor else 1)

    def ratios(self, target):
        """One per round; None where a peer is absent, [] where a row is missing."""
        if any(row[0] in self.absent for row in target.rows()):
            return None
        out = []
        for rows in self.rounds:
            values = [self.value(rows, row) for row in target.rows()]
            if None not in values:
                out.append(values[0] / values[1] if len(values) == 2 else values[0])
        return out


def machine():
    """CPU, cores and SIMD flags; nothing that names the machine."""
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8") if pathlib.Path("/proc/cpuinfo").is_file() else ""
    model = re.search(r"^model name\s*: (.*)$", text, re.M)
    flags = re.search(r"^flags\s*: (.*)$", text, re.M)
    known = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512_bf16", "avx512_fp16", "amx_bf16")
    present = [flag for flag in known if flags and flag in flags.group(1).split()]
    cores = len(re.findall(r"^processor\s*:", text, re.M))
    return f"{model.group(1) if model else 'unknown CPU'}, {cores} cores, {' '.join(present)}"


def number(x):
    return f"{x:.3g}" if x < 100 else f"{x:.0f}"


def table(results, facts):
    lines = ["Measured on: " + "; ".join([machine()] + facts) + f". Rounds: {len(results.rounds)}.", ""]
    counted = met = 0
    failed = []
    body = []
    for title, note, targets in sections():
        body += [f"### {title}", note, "", "| case | target | measured | least - most | met |", "|---|---|---|---|---|"]
        for target in targets:
            ratios = results.ratios(target)
            if not ratios:
                body.append(f"| {target.case} | {target.goal()} | {'absent' if ratios is None else 'missing'} | | |")
                continue
            middle = statistics.median(ratios)
            verdict = target.met(middle)
            if verdict:
                counted, met = counted + 1, met + (verdict == "yes")
                if verdict != "yes":
                    failed.append(f"{title}: {target.case}: {number(middle)}{target.unit}, wanted "
                                  f"{target.sign} {target.limit:g}")
            spread = f"{number(min(ratios))} - {number(max(ratios))}" if len(ratios) > 1 else ""
            body.append(f"| {target.case} | {target.goal()} | {number(middle)}{target.unit} | {spread} | {verdict} |")
        body.append("")
    lines += [f"{met} of {counted} targets are met.", ""]
    if results.absent:
        lines += ["Absent: " + ", ".join(PEERS.get(p, p) for p in sorted(results.absent)) + ".", ""]
    return lines + body, failed


def write(page, lines):
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"{page}: needs one {BEGIN} and one {END}")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(before + BEGIN + "\n" + "\n".join(lines) + END + after, encoding="utf-8")


def main(words):
    page = pathlib.Path(words[words.index("--write") + 1]) if "--write" in words else None
    facts = [words[words.index("--facts") + 1]] if "--facts" in words else []
    results = Results(pathlib.Path(words[0]))
    lines, failed = table(results, facts)
    print("\n".join(lines))
    for line in failed:
        print(f"not met: {line}")
    for row in sorted(results.missing):
        print(f"missing row: {row}")
    if page and not results.missing:
        write(page, lines)
    return 1 if results.missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
