#!/usr/bin/env bash
# exports.sh itself is tested: a stray symbol, a missing one and fast-math start-up code must be found.
# tests/project/exports_caught.sh CC
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export RINGATTN_FEW=1  # a library of one function, not the whole interface
echo 'int ringattn_one(void);' >"$scratch/one.h"
library() {
  echo "$1" | "$2" -shared -fPIC -x c - -o "$scratch/lib.so" ${3:-}
}
expect() {
  local output
  if output=$("$here/exports.sh" "$scratch/lib.so" "$scratch/one.h" 2>&1); then
    [ "$1" = nothing ] || { echo "not found: $1" && exit 1; }
  else
    grep -qF "$1" <<<"$output" || { echo "expected '$1', got: $output" && exit 1; }
  fi
}
library 'int ringattn_one(void) { return 1; }' "$1"
expect nothing
library 'int ringattn_one(void) { return 1; } int stray(void) { return 2; }' "$1"
expect stray
library 'int ringattn_two(void) { return 1; }' "$1"
expect 'missing: ringattn_one'
library 'int ringattn_one(void) { return 1; } static int set_fast_math(void) { return 2; } int (*ringattn_p)(void) = set_fast_math;' "$1"
expect crtfastmath
echo "3 of 3 planted faults found"
