#!/bin/sh
# Makes .venv from the pinned, hashed requirement files.
#   requirements/install.sh base   kfm-kernel and kfm-lint (editable), what they need, and progress bars
#   requirements/install.sh demo   also what `make demo` needs: the catalogue's server, and a client of it
#   requirements/install.sh test   also what `make test` needs
# PYTHON=… chooses the interpreter; else the newest of 3.11 and later on PATH.
set -eu
cd "$(dirname "$0")/.."
what=${1:-base}

# A foreign environment must leak neither into the interpreter nor into the installers.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV CONDA_PREFIX PIP_USER PIP_TARGET PIP_PREFIX UV_PROJECT_ENVIRONMENT UV_PYTHON

say() { printf '%s\n' "$*" >&2; }

usable() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        usable "$PYTHON" || { say "PYTHON=$PYTHON is not a Python of 3.11 or later."; return 1; }
        command -v "$PYTHON"
        return
    fi
    for name in python3.14 python3.13 python3.12 python3.11 python3; do
        if command -v "$name" >/dev/null 2>&1 && usable "$name"; then
            command -v "$name"
            return
        fi
    done
    say "kfm needs Python 3.11 or later, and none was found on PATH."
    say "Found: $(python3 --version 2>&1 || echo 'no python3')."
    say "Install one (on Debian: apt-get install python3 python3-venv) or name it: make install PYTHON=/path/to/python3.12"
    return 1
}

# A half-made or moved environment is made again: its scripts name absolute paths.
if [ ! -f .venv/.kfm-home ] || [ "$(cat .venv/.kfm-home)" != "$PWD" ] || ! usable .venv/bin/python; then
    python=$(choose_python)
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        say "$python has no venv module. On Debian: apt-get install python3-venv"
        exit 1
    fi
    say "Making .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
        --require-hashes --only-binary :all: -r requirements/uv.txt
    printf '%s\n' "$PWD" >.venv/.kfm-home
fi

install() {
    .venv/bin/uv pip install --quiet --python .venv/bin/python "$@"
}

# Until it was called kfm-kernel, the project was installed here as kfm: both would own the command.
if [ -n "$(find .venv/lib -maxdepth 3 -name 'kfm-[0-9]*.dist-info' -print -quit)" ]; then
    .venv/bin/uv pip uninstall --quiet --python .venv/bin/python kfm
fi
install --require-hashes --compile-bytecode -r requirements/build.txt -r requirements/progress.txt
if [ "$what" != base ]; then
    install --require-hashes --compile-bytecode -r "requirements/$what.txt"
fi
install --no-build-isolation --no-deps --editable src/kfm_lint --editable .
# Start-up is promised to be quick, also where PYTHONDONTWRITEBYTECODE is set.
.venv/bin/python -m compileall -q src
touch ".venv/.kfm-base"
[ "$what" = base ] || touch ".venv/.kfm-$what"
