#!/bin/sh
# Run a program whose kernels on the host device are watched by AddressSanitizer and UndefinedBehaviorSanitizer:
#   sh tools/host_sanitize.sh [program and its arguments]     (default: the kernel tests, with few examples)
#   PYTHON=/path/to/python    with cupy_turbo's extra test    (default .venv-test/bin/python)
#   CXX=/path/to/g++          its AddressSanitizer is used
#   CUPY_TURBO_HOST_SANITIZE=address,undefined                (default: both)
# The first finding ends the program with a report; leaks are not looked for, for Python's are not ours.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv-test/bin/python}
compiler=${CXX:-g++}

# The compiler answers with the bare name where it has no such file. libstdc++: AddressSanitizer must see it start.
asan=$($compiler -print-file-name=libasan.so)
case $asan in
/*) ;;
*)
    echo "cupy_turbo: $compiler has no AddressSanitizer (libasan): install g++ with its sanitizers, or set CXX to one." >&2
    exit 1
    ;;
esac
export CUPY_TURBO_HOST_SANITIZE="${CUPY_TURBO_HOST_SANITIZE-address,undefined}"
export ASAN_OPTIONS="detect_leaks=0:detect_stack_use_after_return=0:quarantine_size_mb=32:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
if [ $# -eq 0 ]; then
    # A report goes to the process's own standard error, which pytest must not hold back. NVRTC's products are not run.
    CUPY_TURBO_EXAMPLES=${CUPY_TURBO_EXAMPLES:-0.05}
    export CUPY_TURBO_EXAMPLES
    set -- "$python" -m pytest tests/kernels --capture=sys \
        --ignore tests/kernels/test_compile.py --ignore tests/kernels/test_host_sanitizers.py
fi
LD_PRELOAD="$asan $($compiler -print-file-name=libstdc++.so)" exec "$@"
