#!/bin/sh
# Run the tests that run on a GPU:  sh tools/gpu_tests.sh [pytest options]
#   PYTHON=/path/to/python    with cupy_turbo's extras cuda12 (or cuda13), gguf and test   (default .venv-test/bin/python)
#   SANITIZER=memcheck        only the kernel tests, under compute-sanitizer; also racecheck, synccheck, initcheck
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv-test/bin/python}

if [ -z "${SANITIZER:-}" ]; then
    exec "$python" -m pytest tests/kernels tests/property tests/parity tests/e2e --device cuda "$@"
fi
command -v compute-sanitizer >/dev/null || {
    echo "cupy_turbo: compute-sanitizer is not on the PATH: it comes with the CUDA toolkit, in its bin folder." >&2
    exit 1
}
# API errors are left to the tests, which provoke some; a lost device is provoked in processes that are not followed.
# Times grow tenfold and more: few examples, no limit, and nothing that measures time or concerns the host only.
CUPY_TURBO_EXAMPLES=${CUPY_TURBO_EXAMPLES:-0.05}
export CUPY_TURBO_EXAMPLES
# That probe reads shared memory whose copy it has not waited for: racecheck is right to complain.
if [ "$SANITIZER" = racecheck ]; then set -- --deselect tests/kernels/test_primitives.py::test_waiting_for_a_group_waits_for_those_before_it "$@"; fi
exec compute-sanitizer --tool "$SANITIZER" --report-api-errors no --error-exitcode 1 \
    "$python" -m pytest tests/kernels --device cuda --timeout 0 \
    --ignore tests/kernels/test_cuda_process.py --ignore tests/kernels/test_compile.py \
    --ignore tests/kernels/test_host_compiler.py --ignore tests/kernels/test_kernel_headers.py "$@"
