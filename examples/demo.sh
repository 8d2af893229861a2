#!/bin/sh
# Two inputs, two sizes that vary, nothing declared: export at one size, run at another.
set -e
say() {
    printf '\n$ %s\n' "$*"
    "$@"
}
mkdir -p build
say anyshape export examples/two_inputs.py:build -o build/two_inputs.onnx
say anyshape run build/two_inputs.onnx --size batch=5,seq=77
