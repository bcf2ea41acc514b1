#!/usr/bin/env bash
# What `./dev bench` runs, after the set-up and the release build. bench/README.md says how each number is made.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake --build --preset release --target bench_floors -- --quiet | sed '/^ninja: no work to do/d'
export PGCOURIER_BIN="${PGCOURIER_BIN:-$PWD/build/release/pgcourier}"
python=/usr/bin/python3 # the one that has Debian's packages
[ -x "$python" ] || python=python3
exec "$python" -m bench.run "$@"
