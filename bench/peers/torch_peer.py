#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""torch_peer.py [--benchmark_out=FILE] [--benchmark_repetitions=N] [--benchmark_min_time=SECONDS[s]]

The rows of torch_peer.cpp from Python, in Google Benchmark's JSON: for where PyTorch is installed without its C++
headers. Prints `peer=torch absent` without PyTorch. CPU time of the one thread.
"""
import json
import os
import random
import sys
import time

for library in ("OMP", "OPENBLAS", "MKL"):  # read when the libraries are loaded
    os.environ[f"{library}_NUM_THREADS"] = "1"
try:
    import torch
except ImportError:
    print("peer=torch absent")
    sys.exit(0)

attend = torch.nn.functional.scaled_dot_product_attention


def rope(tokens):
    x, c, s = (torch.randn(1, tokens, heads, 128) for heads in (32, 1, 1))
    return (lambda: x * c + torch.cat((-x[..., 64:], x[..., :64]), -1) * s), {"ns_per_element": 1e9 / x.numel()}


def attention(heads, kv_heads, queries, keys, dim, biased):
    q, k, v = (torch.randn(1, h, n, dim) for h, n in ((heads, queries), (kv_heads, keys), (kv_heads, keys)))
    pairs = keys if queries == 1 else queries * (queries + 1) / 2
    rates = {"gflops": 4e-9 * heads * pairs * dim}
    if queries == 1:
        rates["gb_per_s"] = 8e-9 * keys * kv_heads * dim
    bias = None
    if biased:
        distance = torch.arange(keys)[None, :] - (torch.arange(queries)[:, None] + keys - queries)
        bias = (distance[None] * torch.rand(heads, 1, 1)).masked_fill(distance[None] > 0, float("-inf"))[None]
    grouped = {"enable_gqa": True} if heads != kv_heads else {}
    return (lambda: attend(q, k, v, attn_mask=bias, is_causal=not biased and queries > 1, **grouped)), rates


def cases():
    for tokens in (1, 16, 512, 2048):
        yield f"encoders/rope_table/half_split/float/{tokens}", lambda t=tokens: rope(t)
    for biased in (False, True):
        for n in (512, 2048):
            for dim in (64, 128):
                name = f"attention/prefill/{'materialised_bias' if biased else 'none'}/8_heads/{n}/{dim}"
                yield name, lambda n=n, dim=dim, biased=biased: attention(8, 8, n, n, dim, biased)
    for kv_heads in (8, 32):
        name = f"attention/decode/none/32_heads/{kv_heads}_kv_heads/4096/128/float/head_major"
        yield name, lambda kv_heads=kv_heads: attention(32, kv_heads, 1, 4096, 128, False)


def seconds_per_call(f, min_time):
    calls = 1
    while True:
        start = time.thread_time()
        for _ in range(calls):
            f()
        spent = time.thread_time() - start
        if spent >= min_time:
            return spent / calls
        calls = max(calls + 1, min(10 * calls, int(1.2 * calls * min_time / max(spent, 1e-6))))


def main():
    options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
    repetitions = int(options.get("benchmark_repetitions", 1))
    min_time = float(options.get("benchmark_min_time", "0.5").rstrip("s"))
    torch.set_num_threads(1)
    rows = []
    with torch.no_grad():
        work = [case for case in cases() for _ in range(repetitions)]
        random.shuffle(work)
        for name, make in work:
            f, rates = make()
            f()
            seconds = seconds_per_call(f, min_time)
            row = {"name": name, "run_name": name, "run_type": "iteration", "cpu_time": seconds * 1e9}
            row["time_unit"] = "ns"
            for counter, rate in rates.items():
                row[counter] = rate * seconds if counter == "ns_per_element" else rate / seconds
            rows.append(row)
            print(name, {key: row[key] for key in rates}, flush=True)
    if "benchmark_out" in options:
        with open(options["benchmark_out"], "w", encoding="utf-8") as out:
            json.dump({"benchmarks": rows}, out, indent=1)


main()
