#!/bin/sh
# Usage: no_fused_update.sh OBJDUMP FILE…: disassembles the kernels in object files or libraries and fails when the
# AdamW update holds a fused multiply-add, or is not there for all targets. A fused instruction rounds once where the
# others round twice, so the targets would no longer give the same bits.
set -eu
objdump=$1
shift
"$objdump" --disassemble --demangle --no-show-raw-insn "$@" | awk '
  /^[0-9a-f]+ <.*>:$/ {
    inside = /::adamw_chunk</
    name = $0
    if (inside && match(name, /(baseline|avx2|avx512|avx512_bf16)::/)) ++found[substr(name, RSTART, RLENGTH - 2)]
    next
  }
  inside && $2 ~ /^(v?fn?m(add|sub)|fml[as]|fn?madd|fn?msub)/ { print name; print $0; ++fused }
  inside { ++instructions }
  END {
    split("baseline avx2 avx512 avx512_bf16", targets, " ")
    for (i in targets) {
      # For f32 and bf16, with moments in f32 and in 8 bits.
      if (found[targets[i]] < 4) { print "the update for " targets[i] " was not found"; exit 1 }
    }
    if (fused > 0) { print fused " fused instructions in the update"; exit 1 }
    print instructions " instructions, none fused"
  }'
