"""One reader in a process of its own, with inputs led by what they reach: `python -m tests.fuzz.guided NAME`.

libFuzzer keeps every input that reaches a new branch of kfm and changes it further. It ends with the input
in hand where one raises, takes too long, or takes more memory than is allowed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.mutate import BYTES_MAX, TOKENS

MEMORY_MB = 256
INPUT_SECONDS = 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="fuzz.guided", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--found", default=".", help="folder for an input that breaks a reader")
    options = parser.parse_args()
    import atheris

    with atheris.instrument_imports(include=["kfm"], enable_loader_override=False):
        from tests.fuzz import targets

    target = targets.TARGETS[options.name]
    for data in target.seeds:
        targets.attempt(options.name, data)  # what is imported late is there, and each seed is an answer
    with tempfile.TemporaryDirectory(prefix="kfm-fuzz-") as folder:
        corpus, words = Path(folder) / "corpus", Path(folder) / "words"
        corpus.mkdir()
        for number, data in enumerate(target.seeds):
            (corpus / str(number)).write_bytes(data)
        words.write_text("".join(f'"{_escaped(token)}"\n' for token in TOKENS if len(token) <= 64))
        arguments = [
            sys.argv[0],
            str(corpus),
            f"-dict={words}",
            f"-max_total_time={options.seconds}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-timeout={INPUT_SECONDS}",
            f"-max_len={BYTES_MAX}",
            f"-seed={options.seed + 1}",
            f"-artifact_prefix={options.found}/{options.name}-",
            "-print_final_stats=1",
        ]
        atheris.Setup(arguments, lambda data: targets.attempt(options.name, data))
        atheris.Fuzz()


def _escaped(token: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token)


if __name__ == "__main__":
    main()
