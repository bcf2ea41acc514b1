#!/usr/bin/env bash
# What `./dev demo` runs, after the set-up and the release build. bench/demo/run.py says what is shown.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PGCOURIER_BIN="${PGCOURIER_BIN:-$PWD/build/release/pgcourier}"
python=/usr/bin/python3 # the one that has Debian's packages
[ -x "$python" ] || python=python3
exec "$python" -m bench.demo.run "$@"
