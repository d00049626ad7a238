#!/bin/sh
# Stop with one sentence unless there is a C++17 compiler for the host device.  CXX names it (default: g++, clang++ or c++).

works() {
    # Unquoted: CXX may hold words, as in "ccache g++".  <thread>: clang without a C++ library is of no use.
    printf '#include <thread>\nint main() { return 0; }\n' | $1 -std=c++17 -x c++ -fsyntax-only - 2>/dev/null
}

if [ -n "${CXX:-}" ]; then
    works "$CXX" && exit 0
    echo "cupy_turbo: CXX=$CXX is not a working C++17 compiler: set CXX to one, or unset it to use g++." >&2
    exit 1
fi
for compiler in g++ clang++ c++; do
    works "$compiler" && exit 0
done
echo "cupy_turbo: no C++17 compiler found, which runs the kernels without a GPU: install one (Debian, Ubuntu: apt-get \
install g++) or set CXX to its path." >&2
exit 1
