"""Would anybody miss it? What the work under a silent handler was for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kfm.lint.loops import is_work
from kfm.lint.names import is_remark, is_sleep, last
from kfm.lint.outline import Function, Module, Trying, calls_in, inside, names_in

# Tidying up goes on whatever happens; an error there would hide the one that matters.
_TIDYING = re.compile(
    r"(?i)^_*(force_|safe_|a)?(close|shutdown|disconnect|release|unlink|remove|rm|kill|terminate|cancel|rollback|stop|join|clean|clear"
    r"|flush|quit|logout|detach|un(register|subscribe|bind|install|lock|link|set|watch|mount|load|patch|hook)|deregister|dispose|destroy"
    r"|__a?exit__|restore|abort|delete|discard|free|end(_|$)|wait|disable|drop|reset|server_close|teardown|tear_down|finali[sz]e|purge|evict"
    r"|expire|invalidate|exit|interrupt|send_signal|killpg|nack|reject|finish|done|task_done|set_result|set_exception|leave|prune)"
)
# Comfort: permissions, priorities, terminals, sockets. Done where the platform allows it.
_COMFORT = re.compile(
    r"(?i)^_*(set(timeout|blocking|sockopt|locale|proctitle|rlimit|recursionlimit|switchinterval|_start_method|_defaults?"
    r"|_name|_title|_icon\w*|_option|_theme|_style|_sharing_strategy|_num_threads|_printoptions|_cmap|_on_\w+)"
    r"|chmod|fchmod|chown|utime|copystat|copymode|nice|ionice|cpu_affinity|signal|prctl|simplefilter|filterwarnings|reconfigure"
    r"|register\w*|install|enable\w*|patch\w*|activate|configure_logging|basicConfig|tight_layout|collect|touch|startfile|open_new\w*"
    r"|addHandler|update_layout|redraw|repaint|draw\w*|render\w*|show\w*|display\w*|beep|focus\w*|raise_|lift|setattr"
    r"|__setattr__|mkdir|makedirs|symlink|fsync|seek|rewind|truncate|tell|load_dotenv|parse_and_bind|read_history_file"
    r"|write_history_file|assert\w*|warn\w*|lock|acquire|breakpoint|set_trace|extend_path|add_dll_directory|use)$"
)
# Telling somebody, or remembering for speed: never at the cost of the work.
_ON_THE_SIDE = re.compile(
    r"(?i)telemetry|analytic|metric|usage|track(er|ing)?(_|$)|^_*track|trac(e|ing)(r|s)?(_|$)|instrument|observab|profil|callback|hook"
    r"|listener|observer|subscriber|notif|(^|_)on_[a-z]|progress|autolog|banner|heartbeat|cache|memo(ize|ry_usage)|history|breadcrumb|stats|sentry"
    r"|span|audit_log|diagnos|debug|monkey|patch|nowait|weakref|_count(er)?$|compat|plugin|extension|tooltip|status_?(bar|line|message)|keep_?alive|version_?check"
    r"|update_?check|(^|_)logs?(_|$)|logging|set_status|set_attribute|record_|emit|dispatch|publish_event|annotate|pbar|tqdm|report_"
)
_BESIDE_FILES = re.compile(
    r"(?i)telemetry|analytic|metric|usage|tracing|tracer|instrument|observab|profil|callback|hook|autolog|monkey|sentry|patch"
    r"|monitor|logger|(^|_)log(ging|s)?(_|$)|^(exceptions?|errors?)$|updates?_?check|check_?updates?"
)
_WRITES = re.compile(
    r"(?i)^_*(a|bulk_|batch_|async_)?(write|save|store|upload|insert|upsert|commit|persist|publish|submit|ingest|transfer"
    r"|executemany|replicate|push|export|migrate)"
    r"(_(?!from|path|dir|name|id|key|url|config|settings|timeout)\w+|$)"
)
_FETCHES = frozenset(("requests", "httpx", "urllib", "urllib3", "aiohttp", "boto3"))
_COLLECTS = frozenset("append add extend update insert setdefault appendleft".split())
# Functions that somebody handed in: their errors are theirs.
_SOMEBODY = frozenset("cb fn func callable handler observer validator visitor f".split())
Attempt = Trying | ast.With | ast.AsyncWith


def is_missed(module: Module, body: list[ast.stmt], function: Function | None, attempt: Attempt) -> bool:
    """Was something to be done here that nobody hears of if it fails?

    Work for its effect, an item that was to be collected, or a fetched answer. Values with a default, comfort,
    tidying up and whatever goes beside the work are not missed.
    """
    if function is not None and _ON_THE_SIDE.search(function.name):
        return False
    if any(_BESIDE_FILES.search(name) for name in _names_around(module, attempt)):
        return False
    calls = calls_in(body)
    named = [module.names.called(call) for call in calls]
    if any(_ON_THE_SIDE.search(name) for name in named):
        return False
    tidying = [name for name in named if _TIDYING.match(last(name))]
    if tidying and (len(named) <= 3 or len(tidying) * 2 >= len(named) or tidying[0] == named[0]):
        return False
    for_effect = set() if isinstance(body[-1], ast.Assign | ast.AnnAssign) else _for_effect(body)
    for call, name in zip(calls, named, strict=True):
        if (
            last(name) in _SOMEBODY
            or is_remark(name)
            or is_sleep(name)
            or _TIDYING.match(last(name))
            or _COMFORT.match(last(name))
        ):
            continue
        if last(name) in _COLLECTS:
            if id(call) in for_effect and _is_turn(module, attempt) and is_work(module, _given(call)):
                return True
        elif (id(call) in for_effect and is_work(module, [ast.Expr(call)])) or (
            "." in name and _WRITES.match(last(name))
        ):
            return True
    return _is_answer(module, body, function) and any(
        name.partition(".")[0] in _FETCHES and "." in name for name in named
    )


def _for_effect(body: list[ast.stmt]) -> set[int]:
    """Calls whose result nobody takes: they are there for what they do. (Before an assignment that ends the
    block they prepare a value.)"""
    found = set()
    for node in inside(body):
        if isinstance(node, ast.Expr):
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            found.add(id(value))
    return found


def _given(call: ast.Call) -> list[ast.stmt]:
    return [ast.Expr(each) for each in [*call.args, *(keyword.value for keyword in call.keywords)]]


def _is_turn(module: Module, attempt: Attempt) -> bool:
    """Is it what a loop does with each item?"""
    return any(isinstance(loop, ast.For | ast.AsyncFor) and attempt in loop.body for loop, _ in module.loops)


def _is_answer(module: Module, body: list[ast.stmt], function: Function | None) -> bool:
    """Is what is made here what the function answers, with nothing to tell a failure from an empty answer?"""
    if function is None or not body:
        return False
    if isinstance(body[-1], ast.Return):
        return body[-1].value is not None
    end = function.body[-1]
    made = {
        target.id
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return isinstance(end, ast.Return) and end.value is not None and bool(made & names_in([end.value]))


def _names_around(module: Module, node: Attempt) -> Iterator[str]:
    """The classes that hold this place, and the file."""
    for each in module.classes:
        if each.lineno <= node.lineno <= (each.end_lineno or 0):
            yield each.name
    yield from module.source.path.replace("\\", "/").removesuffix(".py").rsplit("/", 2)[-2:]
