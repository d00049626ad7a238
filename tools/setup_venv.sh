#!/bin/sh
# Make a virtual environment with this project in it, editable:  sh tools/setup_venv.sh FOLDER [EXTRA...]
# `cuda` stands for the CUDA extra that fits this machine's driver; without a usable GPU it stands for none, and a C++
# compiler must be there instead.  `gpu` installs nothing, and stops without a usable GPU.
# Does nothing when FOLDER already has them all.  PYTHON names the interpreter (default: the first that is new enough).
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift

stop() {
    printf 'cupy_turbo: %s\n' "$1" >&2
    exit 1
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    for candidate in ${PYTHON:-python3 python python3.14 python3.13 python3.12 python3.11}; do
        if is_new_enough "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    [ -z "${PYTHON:-}" ] || stop "PYTHON=$PYTHON is not a Python 3.11 or newer: set PYTHON to the path of one."
    stop "no Python 3.11 or newer found: install one (Debian 12, Ubuntu 24.04: apt-get install python3 python3-venv) \
or set PYTHON to its path."
}

make_venv() {
    # Debian ships Python without ensurepip, and `-m venv` then fails half-way with a page of text.
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
        stop "$python cannot make virtual environments: install its venv module (Debian, Ubuntu: apt-get install \
python3-venv) or set PYTHON to another Python."
    "$python" -m venv --clear "$folder" || stop "$python could not make the environment $folder: see its message above."
}

python=$(find_python)
extras=
for extra in "$@"; do
    case $extra in
    cuda)
        extra=$("$python" tools/detect_cuda_extra.py)
        [ -n "$extra" ] || sh tools/check_compiler.sh || exit 1
        ;;
    gpu)
        "$python" tools/detect_cuda_extra.py --require >/dev/null || exit 1
        extra=
        ;;
    esac
    [ -z "$extra" ] || extras=${extras:+$extras,}$extra
done

# What is installed is known by the content of the files that decide it, not by their dates, which git does not keep.
installed=$folder/.installed-${extras:-nothing-more}
wanted=$(cat setup.cfg pyproject.toml | cksum)
if [ "$(cat "$installed" 2>/dev/null)" = "$wanted" ] && is_new_enough "$folder/bin/python"; then
    exit 0
fi
is_new_enough "$folder/bin/python" || make_venv
printf 'Installing cupy_turbo%s into %s ...\n' "${extras:+[$extras]}" "$folder" >&2
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --editable ".${extras:+[$extras]}" ||
    stop "pip could not install what cupy_turbo${extras:+[$extras]} needs: its message is above; check the network, \
or set PIP_INDEX_URL to a mirror."
printf '%s\n' "$wanted" >"$installed"
