#!/usr/bin/env bash
# The include rules themselves are tested: a planted include against the arrows must be found.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
(cd "$root" && git ls-files --cached --others --exclude-standard src comm kernels launch | tar -cf - -T -) | tar -xf - -C "$copy"
git -C "$copy" init -q
plant() {
  cp "$copy/$1" "$copy/saved"
  echo "$2" >>"$copy/$1"
  if "$here/includes.sh" "$copy" >/dev/null 2>&1; then
    echo "not found: $2 in $1"
    exit 1
  fi
  mv "$copy/saved" "$copy/$1"
}
"$here/includes.sh" "$copy" >/dev/null || {
  echo "the unchanged copy does not pass"
  exit 1
}
plant src/plan.cpp '#include "comm/communicator.h"'
plant src/mask.h '#include "kernels/kernel.h"'
plant comm/threads.cpp '#include "src/plan.h"'
plant kernels/kernel.h '#include "src/mask.h"'
plant src/executor.cpp '#include <mpi.h>'
plant src/layout.cpp '#include <omp.h>'
plant src/c_api/ringattn.h '#include <mpi.h>'
plant src/c_api/ringattn.h '#include "src/types.h"'
plant src/c_api/mask.cpp '#include "kernels/kernel.h"'
plant src/plan.h '#include "src/c_api/ringattn.h"'
echo "10 of 10 planted includes found"
