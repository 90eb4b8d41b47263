#!/usr/bin/env bash
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# Installs what is missing, builds the dev preset and runs every test. The last line is `N passed, N failed`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/scripts/packages.sh
posenc_require_packages "${posenc_build_packages[@]}" catch2 libbenchmark-dev python3 binutils
# Without these, counts of instructions and the executor over oneTBB are skipped by name.
(posenc_require_packages valgrind libtbb-dev) || true

# The steps of `cmake --workflow --preset dev`, with as many jobs as the machine carries.
exec bash tests/scripts/stage.sh dev all all_verify_interface_header_sets
