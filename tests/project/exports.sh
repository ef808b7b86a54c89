#!/usr/bin/env bash
# The shared library shows what it promises and nothing else: tests/project/exports.sh LIBRARY C-HEADER...
# The patterns are written here again, apart from src/exports.map, so that a slip there does not excuse itself.
set -euo pipefail
library=$1
shift
fail=0
shown=$(nm -D --defined-only -C "$library" | cut -d' ' -f3-)

# ---- nothing of the inside, of dependencies or of the standard library
api='(name_of|(dtype|layout|pairing|mode|backend)_from_name|visible_pairs|normalized|rotary_dim|validate|fingerprint|digest|needed_hops'
api+='|(forward|backward)_(flops|traffic|bytes)|ring_balance|cpu_(isas|block_bytes|gradient_bytes)|cuda_(built|block_bytes|gradient_bytes)|nccl_built|thread_count|workspace'
api+='|agree_(on_fields|all_well)|make_(self|mpi)_communicator|make_thread_communicators|run_thread_ranks|make_throttled'
api+='|make_(nccl_communicator|staged|device_ranks))'
classes='(RotaryAngles|Problem|Mask|Layout|Plan|Balance|Timing|RingAttention)'
errors='(UsageError|DataError|CommError|DeviceError|OutOfMemory|(Device)?Communicator|Shift)'
allowed="ringattn_[a-z_]+|ringattn::$api(\[abi:cxx11\])?\(.*|ringattn::$classes::[a-z_~A-Z=]+(\[abi:cxx11\])?\(.*"
allowed+="|(typeinfo|typeinfo name|vtable) for ringattn::$errors"
strange=$(grep -vE "^($allowed)$" <<<"$shown" || true)
if [ -n "$strange" ]; then
  echo "exported, but not part of the interface:"
  head -20 <<<"$strange"
  fail=1
fi

# ---- everything that the C headers declare, and what a C++ caller cannot do without
promised=$(grep -hoE '^[a-z].*\bringattn_[a-z_]+\(' "$@" | grep -oE 'ringattn_[a-z_]+\($' | tr -d '(' | sort -u)
[ "$(wc -l <<<"$promised")" -gt 40 ] || [ "${RINGATTN_FEW:-}" ] || {
  echo "only $(wc -l <<<"$promised") functions found in $*: has their form changed?"
  fail=1
}
for name in $promised; do
  grep -qxF "$name" <<<"$shown" || {
    echo "missing: $name"
    fail=1
  }
done
[ "${RINGATTN_FEW:-}" ] || for name in 'ringattn::RingAttention::forward(' 'ringattn::RingAttention::backward(' \
  'ringattn::Mask::documents(' 'ringattn::Layout::custom(' 'ringattn::make_thread_communicators(' 'ringattn::workspace(' \
  'typeinfo for ringattn::UsageError' 'typeinfo for ringattn::OutOfMemory' 'vtable for ringattn::CommError'; do
  grep -qF "$name" <<<"$shown" || {
    echo "missing: $name"
    fail=1
  }
done

# ---- start-up code of -ffast-math, which would set flush-to-zero in every program that loads the library
if nm "$library" 2>/dev/null | grep -q 'set_fast_math'; then
  echo "crtfastmath.o is linked"
  fail=1
fi
echo "$(wc -l <<<"$shown") symbols"
exit $fail
