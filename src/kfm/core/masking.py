"""Datasets whose people have not agreed to be seen go by another name in everything public.

The name is keyed with a value that only the environment knows: whoever guesses an id can't check the guess.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable

from kfm.core.settings import Dataset

PREFIX = "masked-"
HEX_CHARS = 12
MASK_KEY = "mask_key"  # the mark of the store that holds the environment's key


def mask(dataset_id: str, key: str | None) -> str:
    """The public name of a masked dataset: the same each time within one environment, and in no other.

    Without a key none may be told apart: a name that anybody can compute is a guess that can be checked.
    """
    if key is None:
        return PREFIX.rstrip("-")
    digest = hmac.new(key.encode(), dataset_id.encode(), hashlib.sha256).hexdigest()
    return f"{PREFIX}{digest[:HEX_CHARS]}"


def hidden_names(datasets: Iterable[Dataset]) -> Callable[[str], bool] | None:
    """Tells whether a node or pipeline is named after a masked dataset, or after a part of one.

    None where there is no such dataset: then nobody need be asked for each of ten thousand names.
    """
    hidden = {dataset.id for dataset in datasets if is_masked(dataset)}
    if not hidden:
        return None

    def is_hidden(name: str) -> bool:
        while name:
            if name in hidden:
                return True
            name = name.rpartition(".")[0]
        return False

    return is_hidden


def is_masked(dataset: Dataset) -> bool:
    """Must its name be kept out of everything public? If nobody declared its rights, yes."""
    rights = dataset.rights
    if rights is None or rights.care.level in ("restricted", "blocked"):
        return True
    return rights.sovereignty is not None and rights.sovereignty.consent != "granted"
