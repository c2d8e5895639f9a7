"""Idempotency keys: what each is made of, and the key itself."""

from __future__ import annotations

from kfm.model.keys import key_of, run_id, trigger_document, trigger_key, work_document, work_key
from kfm.model.records import Trigger, Window, Work

__all__ = [
    "Trigger",
    "Window",
    "Work",
    "key_of",
    "run_id",
    "trigger_document",
    "trigger_key",
    "work_document",
    "work_key",
]
