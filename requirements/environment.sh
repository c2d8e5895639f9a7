#!/bin/sh
# An environment outside the project, for what is too large for .venv or would not fit in it.
#   requirements/environment.sh where airflow   the folder in which it is, or would be
#   requirements/environment.sh make airflow    makes it, unless it is there
# It is named by what it is made of: a changed pin makes another one. KFM_ENVIRONMENTS says where.
set -eu
cd "$(dirname "$0")/.."
what=${1:?make or where}
name=${2:?airflow, dbos, langgraph, node or pgstac}
pins=requirements/$name.txt
[ -f "$pins" ] || { printf 'There is no %s.\n' "$pins" >&2; exit 2; }
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV CONDA_PREFIX UV_PROJECT_ENVIRONMENT UV_PYTHON

points=$(sed -n -e '/^name = /p' -e '/entry-points/,/^$/p' pyproject.toml src/kfm_lint/pyproject.toml)
key=$({ printf '%s\n' "$PWD" "$points"; cat "$pins" requirements/build.txt; } | sha256sum | cut -c1-12)
folder=${KFM_ENVIRONMENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/kfm-environments}/$name-$key
[ "$what" = make ] || { printf '%s\n' "$folder"; exit 0; }

if [ ! -f "$folder/.kfm-made" ]; then
    printf 'Making an environment for %s in %s\n' "$name" "$folder" >&2
    rm -rf "$folder"
    .venv/bin/uv venv --quiet --python .venv/bin/python "$folder"
    install() { .venv/bin/uv pip install --quiet --python "$folder/bin/python" "$@"; }
    install --require-hashes --compile-bytecode -r "$pins" -r requirements/build.txt
    install --no-build-isolation --no-deps --editable src/kfm_lint --editable .
    touch "$folder/.kfm-made"
fi
printf '%s\n' "$folder"
