#!/bin/sh
# Compiles the pinned requirement files: hashes, every platform, no address, no path.
set -eu
cd "$(dirname "$0")/.."
uv="${UV:-.venv/bin/uv}"
pin() {
    out=$1; shift
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-package kfm-lint \
        --output-file "requirements/$out.txt" "$@" >/dev/null
}
pin uv requirements/uv.in
pin build requirements/build.in
pin base pyproject.toml
pin progress pyproject.toml --extra progress --constraint requirements/base.txt
pin demo pyproject.toml requirements/demo.in --extra progress --extra serve --constraint requirements/progress.txt
pin test pyproject.toml requirements/test.in requirements/build.in \
    --constraint requirements/demo.txt --constraint requirements/build.txt \
    --extra progress --extra postgres --extra objects --extra aws --extra parquet \
    --extra delta --extra lakefs --extra lineage --extra otel --extra serve --extra dask
# What a service is installed with; the same versions as are tested.
pin service pyproject.toml --constraint requirements/test.txt \
    --extra serve --extra postgres --extra objects --extra aws --extra parquet --extra lineage --extra otel
# Frameworks in environments of their own, each with what kfm itself needs.
for framework in airflow langgraph pgstac dbos; do
    pin "$framework" pyproject.toml "requirements/$framework.in" --constraint requirements/base.txt
done
# The runtime of the Node.js twin, which needs none of that.
pin node requirements/node.in
if grep -nE '://|find-links|index-url|/(home|root|tmp)/' requirements/*.txt; then
    echo "A pinned file names an address or a path of this machine." >&2
    exit 1
fi
