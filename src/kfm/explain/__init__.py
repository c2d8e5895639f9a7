"""Why something is as it is, told from the records alone."""

from __future__ import annotations

from kfm.explain.sentences import Account, Ref, Sentence
from kfm.explain.wanted import explain

__all__ = ["Account", "Ref", "Sentence", "explain"]
