#!/usr/bin/env bash
# An include against the arrows of the design fails: tests/project/includes.sh [ROOT]
# The table says for each group of files which project headers it may include.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

fail=0
checked=0

# rule FILES-REGEX ALLOWED-INCLUDE-REGEX: of the quoted includes of matching files.
rule() {
  local files wrong
  files=$(git ls-files --cached --others --exclude-standard '*.h' '*.cpp' | grep -E "^($1)$") || return 0
  checked=$((checked + $(wc -l <<<"$files")))
  wrong=$(xargs grep -HoE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"[^"]+"' <<<"$files" |
    sed -E 's/^([^:]*):[^"]*"([^"]+)"$/\1 \2/' | grep -vE "^[^ ]+ ($2)$" || true)
  if [ -n "$wrong" ]; then
    sed -E 's/^([^ ]+) (.*)/\1 includes "\2"/' <<<"$wrong"
    echo "^ allowed here: $2"
    fail=1
  fi
}

# only_in WHERE-REGEX INCLUDE-REGEX: system headers that are kept out of the rest of the library and program.
only_in() {
  local hits
  hits=$(git ls-files --cached --others --exclude-standard '*.h' '*.cpp' | grep -vE "^(tests|bench)/" | grep -vE "^($1)$" |
    xargs grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]+[<\"]($2)" || true)
  if [ -n "$hits" ]; then
    echo "$hits"
    echo "^ allowed only in: $1"
    fail=1
  fi
}

ring='src/(agreement|backend|slots|executor|attention)'
pure=$(git ls-files --cached --others --exclude-standard 'src/*.h' 'src/*.cpp' | grep -vE "^$ring\.|^src/c_api/" | sed -E 's/\./\\./g' | paste -sd'|')
rule "$pure" "$(sed 's/\\//g' <<<"$pure" | tr '|' '\n' | grep '\.h$' | sed 's/\./\\./g' | paste -sd'|')"
rule 'src/(agreement|executor)\.(h|cpp)' 'src/.*\.h|kernels/kernel\.h|comm/communicator\.h'
rule 'src/slots\.(h|cpp)' 'src/.*\.h|kernels/kernel\.h|comm/(communicator|device)\.h'
rule 'src/backend\.(h|cpp)' 'src/.*\.h|kernels/kernel\.h|kernels/cpu/cpu\.h|kernels/cuda/cuda\.h'
rule 'src/attention\.(h|cpp)' 'src/.*\.h|kernels/kernel\.h|kernels/cpu/cpu\.h|kernels/cuda/stream\.h|comm/(communicator|device)\.h'
rule 'src/c_api/ringattn\.h' 'none'
rule 'src/c_api/ringattn_mpi\.h' 'ringattn\.h'
rule 'src/c_api/[a-z_]+\.cpp|src/c_api/(convert|growing_struct|handles|status)\.h' 'src/.*\.h|comm/.*\.h|kernels/cpu/cpu\.h'
rule 'kernels/.*\.(h|cpp)' 'src/types\.h|src/error\.h|kernels/.*\.h|hwy/.*'
rule 'comm/.*\.(h|cpp)' 'src/types\.h|src/error\.h|comm/.*\.h'
rule 'launch/files/.*\.(h|cpp)' 'src/(types|error|layout)\.h|launch/files/.*\.h'
rule 'python/src/.*\.(h|cpp)' '[a-z]+\.h|src/.*\.h|comm/.*\.h|kernels/cpu/cpu\.h'
only_in 'comm/mpi[a-z_]*\.(h|cpp)|src/c_api/[a-z_]*mpi\.(h|cpp)|launch/[a-z_]+\.(h|cpp)' 'mpi\.h'
only_in 'kernels/cpu/.*' 'hwy/'
only_in 'kernels/cuda/.*|comm/(nccl|staged|device)[a-z_]*\.(h|cpp)' 'cuda|nccl'
only_in 'kernels/cpu/.*' 'omp\.h'
only_in 'launch/.*' 'boost/|nlohmann/'

echo "$checked files checked"
[ "$checked" -gt 20 ] || {
  echo "too few files found: is the table out of date?"
  fail=1
}
exit $fail
