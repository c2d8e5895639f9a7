"""Why something is as it is, told from the records alone."""

from __future__ import annotations

from kfm.reports.explain.sentences import Explanation, Ref, Sentence
from kfm.reports.explain.subjects import explain

__all__ = ["Account", "Ref", "Sentence", "explain"]
