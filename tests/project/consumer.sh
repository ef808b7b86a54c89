#!/usr/bin/env bash
# The installed package is usable: installs into a scratch prefix, builds and runs small programs against it: C++ with
# the static and the shared library, C through CMake in a project without C++, and C with nothing but a compiler.
# tests/project/consumer.sh BUILD-FOLDER CXX CC
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$1" --prefix "$scratch/prefix" >/dev/null
cmake -S "$here/consumer" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_CXX_COMPILER="$2" >/dev/null
cmake --build "$scratch/build" >/dev/null
"$scratch/build/consumer"
"$scratch/build/consumer_shared"

cmake -S "$here/consumer_c" -B "$scratch/build_c" -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_C_COMPILER="$3" >/dev/null
cmake --build "$scratch/build_c" >/dev/null
"$scratch/build_c/consumer"

library=$(dirname "$(find "$scratch/prefix" -name libringattn.so)")
"$3" -std=c99 -pedantic -Wall -Wextra -Werror -I"$scratch/prefix/include" "$here/consumer_c/main.c" -L"$library" -lringattn \
  -Wl,-rpath,"$library" -o "$scratch/plain"
"$scratch/plain"
"$scratch/prefix/bin/ringattn" --version
