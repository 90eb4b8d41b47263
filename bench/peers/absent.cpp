// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Stands in for a peer that was not found.
#include <cstdio>

int main() { std::puts("peer=" PEER " absent"); }
