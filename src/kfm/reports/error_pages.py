"""The page of an error code, as a document."""

from __future__ import annotations

import inspect
from typing import Any

from kfm.model.errors import UsageError, all_errors


def error_page(code: str) -> dict[str, Any]:
    from kfm_lint.rules import page as rule_page

    if (rule := rule_page(code)) is not None:
        return rule
    for error in all_errors():
        if error.code == code:
            headline, _, rest = inspect.cleandoc(error.__doc__ or "").partition("\n")
            return {
                "kind": "error",
                "code": code,
                "name": error.__name__,
                "message": headline,
                "page": rest.strip(),
                "remedy": error.remedy,
                "exit_code": error.exit_code,
                "docs": f"docs/reference/errors.md#{code.lower()}",
            }
    from kfm.model.wording import did_you_mean

    codes = [error.code for error in all_errors()]
    raise UsageError(
        f"There is no error {code}{did_you_mean(code, codes)}",
        remedy="docs/reference/errors.md lists them all.",
    )
