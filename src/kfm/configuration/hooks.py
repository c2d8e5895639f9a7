"""What the hooks of `incidents:` must be, beyond their shape."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kfm.configuration.inline_secrets import is_reference
from kfm.configuration.shape import is_web_address, nearest
from kfm.core.settings import Hook, Settings

HOOKS_MAX = 10  # each may cost a run its time
TIMEOUT_MIN_S, TIMEOUT_MAX_S = 0.1, 60.0
OWN = {"command": {"command"}, "webhook": {"url", "secret"}, "file": {"path"}}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)
_PLAIN = Hook(kind="")

Problem = tuple[str, str]  # path, sentence


def hook_problems(settings: Settings) -> Iterator[Problem]:
    names: set[str] = set()
    for index, hook in enumerate(settings.incidents):
        path = f"incidents[{index}]"
        yield from _hook(hook, path)
        name = hook.name or hook.kind
        if not _NAME.fullmatch(name):
            yield f"{path}.name", f"the hook name `{name[:40]}` has characters that are not allowed"
        elif name in names:
            yield path, f"two hooks are called `{name}`; give one of them a `name`"
        names.add(name)
    if len(settings.incidents) > HOOKS_MAX:
        yield "incidents", f"there are more than {HOOKS_MAX} hooks"


def _hook(hook: Hook, path: str) -> Iterator[Problem]:
    if not TIMEOUT_MIN_S <= hook.timeout_seconds <= TIMEOUT_MAX_S:
        yield (
            f"{path}.timeout_seconds",
            f"`timeout_seconds` must be from {TIMEOUT_MIN_S:g} to {TIMEOUT_MAX_S:g}",
        )
    if hook.kind not in OWN:
        if not _plugin(hook.kind):
            hint = nearest(hook.kind, sorted(OWN))
            yield f"{path}.kind", f"there is no kind of hook `{hook.kind[:40]}`{hint}"
        return
    for field in sorted(OWN[hook.kind]):
        if not getattr(hook, field):
            yield path, f"a hook of kind `{hook.kind}` needs `{field}`"
    for field in sorted(set().union(*OWN.values(), {"options"}) - OWN[hook.kind]):
        if getattr(hook, field) != getattr(_PLAIN, field):
            yield f"{path}.{field}", f"`{field}` does not apply to a hook of kind `{hook.kind}`"
    if hook.kind == "command" and any(not word or "\0" in word for word in hook.command[:1]):
        yield f"{path}.command", "`command` must begin with the name of a program"
    url = hook.url if hook.kind == "webhook" else None
    if url and not is_reference(url) and not is_web_address(url):
        yield f"{path}.url", "`url` must begin with `http://` or `https://` and name a place"


def _plugin(name: str) -> bool:
    from importlib.metadata import entry_points

    return any(point.name == name for point in entry_points(group="kfm.notifiers"))
