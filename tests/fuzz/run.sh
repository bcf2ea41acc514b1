#!/usr/bin/env bash
# run.sh PROGRAM NAME: one fuzzer. First what tests/fuzz/corpus/NAME holds, which does the same every time; then from there
# on with the random numbers of PGCOURIER_FUZZ_SEED, or of a seed of its own, for PGCOURIER_FUZZ_SECONDS (10).
# PGCOURIER_DEEP=1 keeps in build/fuzz/corpus/NAME what they reach, and begins there, too. An input that fails is left in
# build/fuzz/found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

program=$1
name=$2
seconds=${PGCOURIER_FUZZ_SECONDS:-10}
seed=${PGCOURIER_FUZZ_SEED:-$(shuf -i 1-999999999 -n 1)}
mkdir -p build/fuzz/found
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
log=$TMPDIR/log
grown=$TMPDIR/corpus
[ "${PGCOURIER_DEEP:-}" != 1 ] || grown=build/fuzz/corpus/$name
mkdir -p "$grown"
kept=("tests/fuzz/corpus/$name")
[ "$name" != config ] || kept+=(tests/unit/config/broken_configs)

# A seed is not all: libFuzzer is led by addresses, too, and by when it looks for inputs of other processes.
options=(-reload=0 -timeout=60 -rss_limit_mb=4096 -max_len=4096 -artifact_prefix="build/fuzz/found/$name-")
same_addresses=()
! setarch -R true 2>/dev/null || same_addresses=(setarch -R)

run() { # HOW_TO_REPEAT ARGUMENT...
    local repeat=$1
    shift
    "${same_addresses[@]}" "$program" "${options[@]}" "$@" </dev/null >"$log" 2>&1 && return
    tail -n 60 "$log"
    echo "$name failed; the input alone: $program build/fuzz/found/$name-..." >&2
    echo "the same run again: $repeat" >&2
    exit 1
}

run "tests/fuzz/run.sh $program $name" -runs=0 -seed=1 "${kept[@]}"
run "${PGCOURIER_DEEP:+PGCOURIER_DEEP=$PGCOURIER_DEEP }PGCOURIER_FUZZ_SEED=$seed PGCOURIER_FUZZ_SECONDS=$seconds tests/fuzz/run.sh $program $name" \
    -max_total_time="$seconds" -seed="$seed" "$grown" "${kept[@]}"
echo "seed $seed"
grep -E 'DONE|^Done' "$log"
