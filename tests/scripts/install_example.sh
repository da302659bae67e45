#!/bin/sh
# Installs the build folder $1 into an empty prefix, builds examples/train against it as a stranger would, and trains.
set -eu
build=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$build" --prefix "$folder/prefix" >/dev/null
cmake -S "$source/examples/train" -B "$folder/build" -DCMAKE_PREFIX_PATH="$folder/prefix" >/dev/null
cmake --build "$folder/build" >/dev/null
"$folder/prefix/bin/spillway" init --preset demo --tokenizer bytes "$folder/model"
cp "$source/README.md" "$folder/text.txt"
"$folder/build/train" "$folder/model" "$folder/text.txt" "$folder/out" 200 | tee "$folder/log"
grep -q "step 5 loss" "$folder/log"
test -s "$folder/out/model.safetensors"
