#!/usr/bin/env bash
# run.sh PROGRAM NAME: one fuzzer for PGCOURIER_FUZZ_SECONDS (10), starting from tests/fuzz/corpus/NAME. The default is
# the same random numbers every time, so that a run that passed passes again; PGCOURIER_FUZZ_SEED=0 takes fresh ones and
# keeps what they reach in build/fuzz/corpus/NAME. An input that fails is left in build/fuzz/found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

program=$1
name=$2
seconds=${PGCOURIER_FUZZ_SECONDS:-10}
seed=${PGCOURIER_FUZZ_SEED:-1}
mkdir -p build/fuzz/found
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
log=$TMPDIR/log
grown=$TMPDIR/corpus
[ "$seed" != 0 ] || grown=build/fuzz/corpus/$name
mkdir -p "$grown"
corpora=("$grown" "tests/fuzz/corpus/$name")
[ "$name" != config ] || corpora+=(tests/unit/broken_configs)

options=(-max_total_time="$seconds" -seed="$seed" -timeout=60 -rss_limit_mb=4096 -max_len=4096
    -artifact_prefix="build/fuzz/found/$name-")
if "$program" "${options[@]}" "${corpora[@]}" </dev/null >"$log" 2>&1; then
    grep -E 'DONE|^Done' "$log"
else
    tail -n 60 "$log"
    echo "$name failed; try it alone: $program build/fuzz/found/$name-..." >&2
    exit 1
fi
