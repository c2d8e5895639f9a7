"""Calls whose failure may be ignored, and calls whose failure loses work (KFM108)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kfm_lint.findings import LIKELY, SURE
from kfm_lint.index import (
    Function,
    Module,
    TryStatement,
    calls_in,
    inside,
    is_remark,
    is_sleep,
    last,
    names_in,
)
from kfm_lint.retry_loops import is_work

# --- words ----------------------------------------------------------------------------


def _any(words: str) -> str:
    return "(" + "|".join(words.split()) + ")"


# Cleaning up goes on after any failure; an error there would hide the one that matters.
CLEANUP = re.compile(
    r"(?i)^_*(force_|safe_|a)?"
    + _any(
        r"""close shutdown disconnect release unlink remove rm kill terminate cancel rollback stop join
        clean clear flush quit logout detach deregister
        un(register|subscribe|bind|install|lock|link|set|watch|mount|load|patch|hook) dispose destroy
        __a?exit__ restore abort delete discard free end(_|$) wait disable drop reset server_close
        teardown tear_down finali[sz]e purge evict expire invalidate exit interrupt send_signal nack
        reject finish done task_done leave prune"""
    )
)
# Platform set-up: permissions, priorities, terminals, sockets, settings. Done where it is possible.
PLATFORM_SETUP = re.compile(
    r"(?i)^_*"
    + _any(
        r"""set(timeout|blocking|sockopt|locale|proctitle|rlimit|recursionlimit|switchinterval|attr)
        set_(?!state|status|result|value|data|item|record|password|permission|acl)\w+ __setattr__ chmod
        fchmod chown utime copystat copymode nice ionice cpu_affinity signal prctl simplefilter
        filterwarnings reconfigure register\w* (re)?install\w* enable\w* patch\w* activate basicConfig
        configure_logging tight_layout collect touch startfile open_new\w* addHandler update_layout
        redraw repaint draw\w* render\w* show\w* display\w* beep focus\w* raise_ lift mkdir makedirs
        symlink fsync seek rewind truncate tell load_dotenv parse_and_bind read_history_file
        write_history_file assert\w* warn\w* lock acquire breakpoint extend_path add_dll_directory use
        mk_?dir\w* make_?dirs?\w*"""
    )
    + "$"
)
# Notifications, telemetry and caches: never at the cost of the work.
SIDE_WORK = re.compile(
    "(?i)"
    + _any(
        r"""telemetry analytic metric usage track(er|ing)?(_|$) ^_*track trac(e|ing)(r|s)?(_|$) instrument
        observab profil callback hook listener observer subscriber notif (^|_)on_[a-z] progress autolog
        banner heartbeat cache memoi[sz]e memory_usage history breadcrumb stats sentry span audit_log
        diagnos debug monkey patch nowait weakref _count(er)?$ compat plugin extension tooltip
        status_?(bar|line|message) keep_?alive version_?check update_?check (^|_)logs?(_|$) logging
        record_ emit dispatch annotate pbar tqdm report_ (^|_)tags?(_|$) (^|_)attributes?$ _handlers?$"""
    )
)
# The same as the name of a class, a file or a folder, where fewer words are clear.
SIDE_FILES = re.compile(
    "(?i)"
    + _any(
        r"""telemetry analytic metric usage tracing tracer tracking tracker instrument observab profil
        callback hook autolog monkey sentry patch monitor logger (^|_)log(ging|s)?(_|$)
        (^|_)(exceptions?|errors?)(_|$) updates?_?check check_?updates?"""
    )
)
# The end of something goes on whatever happens; a probe answers by failing; some names promise no more
# than a try.
BEST_EFFORT = re.compile(
    r"(?i)(^|_)"
    + _any(
        r"""test a?close shutdown stop terminate clean(up)? clear teardown tear at_?exit exit finali[sz]e
        dispose kill abort cancel interrupt delete reset restore rollback undo uninstall deactivate disconnect
        logout quit release free purge drop discard swallow is has can should check probe detect ping
        try maybe error(s)? failures? exceptions? crash panic best_?effort safe(ly)? quiet(ly)?
        silent(ly)? ignor\w* suppress\w* guess sniff warm warmup prewarm prefetch preload demo example"""
    )
    + "(_|$)"
)
_OBJECT = r"(_(?!from|path|dir|name|id|key|url|config|settings|timeout|error|exception)\w+|(?-i:[A-Z]\w*)|$)"
_WRITING = """write save store upload insert upsert commit persist publish submit ingest transfer executemany
    replicate push export migrate"""
# Its result may be taken, too: it is there for what it leaves behind.
WRITE_VERBS = re.compile(r"(?i)^_*(a|bulk_|batch_|async_)?" + _any(_WRITING) + _OBJECT)
# Work, if it is called for its effect alone. Whatever has another name may be a look, a probe, a formality.
WORK_VERBS = re.compile(
    r"(?i)^_*(a|bulk_|batch_|async_|re)?"
    + _any(
        _WRITING
        + """ load refresh fetch download process run execute create update apply convert transform
        sync import send post put patch copy move rename archive unarchive authenticate configure build
        index train extract parse deliver deploy provision schedule trigger launch compute
        calculate generate merge perform"""
    )
    + _OBJECT
)
# Functions that a caller passed in: their errors are the caller's.
CALLBACKS = frozenset("cb fn func callable handler observer validator visitor f".split())
COLLECT_VERBS = frozenset("append add extend update insert setdefault appendleft".split())
FETCHES = frozenset("requests httpx urllib urllib3 aiohttp boto3".split())


# --- what is lost ---------------------------------------------------------------------

Attempt = TryStatement | ast.With | ast.AsyncWith


def lost_work(module: Module, body: list[ast.stmt], function: Function | None, attempt: Attempt) -> str:
    """Is work lost without a trace if this fails: SURE, LIKELY, or "" for no?

    Work for its effect, an item that was to be collected, or a fetched answer. Values with a default,
    comfort, tidying up and whatever goes beside the work are not missed. Sure is what is written, fetched
    or collected, and what was to be done with each item of a loop.
    """
    if function is not None and SIDE_WORK.search(function.name):
        return ""
    if any(SIDE_FILES.search(name) for name in _names_around(module, attempt)):
        return ""
    called = [(call, module.names.called(call)) for call in calls_in(body)]
    if _cleans_up([name for _, name in called]) or any(map(SIDE_WORK.search, _words(called))):
        return ""
    likely = False
    for_effect = _for_effect(body, attempt)
    offered = _offered(module, body)
    perhaps = {id(call) for node in inside(body) if isinstance(node, ast.If) for call in calls_in([node])}
    for call, name in called:
        if name in offered or _is_minor(name):
            continue
        if last(name) in COLLECT_VERBS:
            if (
                id(call) in for_effect
                and _is_made(module, call)
                and is_work(module, _given(call))
                and _is_lost(module, attempt, call)
            ):
                if last(name) in ("append", "add") and not _is_tried_twice(module, attempt):
                    return SURE
                likely = True
            continue
        acts = id(call) in for_effect and WORK_VERBS.match(last(name)) and is_work(module, [ast.Expr(call)])
        if id(call) in perhaps or _asks(call):
            likely = likely or bool(acts) or ("." in name and WRITE_VERBS.match(last(name)) is not None)
            continue
        if "." in name and WRITE_VERBS.match(last(name)):
            return SURE
        if acts and (WRITE_VERBS.match(last(name)) or _is_for_item(module, attempt, call)):
            return SURE
        likely = likely or bool(acts)
    fetched = any("." in name and name.partition(".")[0] in FETCHES for _, name in called)
    if fetched and _is_answer(body, function):
        return SURE
    return LIKELY if likely else ""


def _is_made(module: Module, call: ast.Call) -> bool:
    """Is the item more than a name put another way? `os.path.abspath(folder)` does not fail."""
    made = [module.names.called(each) for each in calls_in([*call.args])]
    return any(not name.startswith("os.path.") and last(name) not in ("str", "Path") for name in made)


def _asks(call: ast.Call) -> bool:
    """`submit("GET", path)` leaves nothing behind."""
    return any(isinstance(each, ast.Constant) and each.value in ("GET", "HEAD") for each in call.args)


def _is_tried_twice(module: Module, attempt: Attempt) -> bool:
    """Does another loop try the same items in another way? Then what fails here may do well there."""
    around = next((loop for loop, _ in module.loops if attempt in loop.body), None)
    if not isinstance(around, ast.For):
        return False
    if isinstance(around.iter, ast.Tuple | ast.List):
        return True  # `for strict in (True, False):`
    return any(
        loop is not around and isinstance(loop, ast.For) and ast.dump(loop.iter) == ast.dump(around.iter)
        for loop, _ in module.loops
        if any(isinstance(node, ast.Try) for node in loop.body)
    )


def _is_for_item(module: Module, attempt: Attempt, call: ast.Call) -> bool:
    """`for part in parts: try: load(part)`: is it done to each item, and to nothing else?"""
    subjects = {each.id for each in call.args if isinstance(each, ast.Name)}
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        subjects.add(call.func.value.id)
    return any(
        isinstance(loop, ast.For | ast.AsyncFor)
        and attempt in loop.body
        and subjects & names_in([loop.target])
        for loop, _ in module.loops
    )


def _cleans_up(names: list[str]) -> bool:
    tidying = [name for name in names if CLEANUP.match(last(name))]
    if not tidying:
        return False
    return len(names) <= 3 or len(tidying) * 2 >= len(names) or tidying[0] == names[0]


def _is_minor(name: str) -> bool:
    short = last(name)
    if short in CALLBACKS or is_remark(name) or is_sleep(name):
        return True
    return CLEANUP.match(short) is not None or PLATFORM_SETUP.match(short) is not None


def _words(called: list[tuple[ast.Call, str]]) -> Iterator[str]:
    """The parts of what is called, and of what is handed to it by name."""
    for call, name in called:
        yield from name.split(".")
        for each in call.args:
            if isinstance(each, ast.Attribute):
                yield each.attr


def _for_effect(body: list[ast.stmt], attempt: Attempt) -> set[int]:
    """Calls whose result is not used: they are there for their effect.

    Before an assignment that ends the block they prepare a value; with an `else` they are a probe; and
    `suppress` is a decision of its author.
    """
    if isinstance(body[-1], ast.Assign | ast.AnnAssign):
        return set()
    if not isinstance(attempt, ast.Try | ast.TryStar) or attempt.orelse:
        return set()
    found = set()
    for node in inside(body):
        if isinstance(node, ast.Expr):
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            found.add(id(value))
    return found


def _offered(module: Module, body: list[ast.stmt]) -> set[str]:
    """`warm = getattr(client, "warm", None)`: what is called only where it exists."""
    return {
        name
        for node in inside(body)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and module.names.called(node.value) == "getattr"
        for name in names_in(list(node.targets))
    }


def _given(call: ast.Call) -> list[ast.stmt]:
    return [ast.Expr(each) for each in [*call.args, *(keyword.value for keyword in call.keywords)]]


def _is_lost(module: Module, attempt: Attempt, call: ast.Call) -> bool:
    """Is it an item of a loop, in a collection whose size is not looked at afterwards?"""
    for loop, function in module.loops:
        if isinstance(loop, ast.For | ast.AsyncFor) and attempt in loop.body:
            filled = names_in([call.func]) - COLLECT_VERBS - {"self"}
            looked = [
                node.test
                for node in inside(list(function.body) if function is not None else [])
                if isinstance(node, ast.If) and node.lineno > (loop.end_lineno or 0)
            ]
            return not filled & names_in(looked)
    return False


def _is_answer(body: list[ast.stmt], function: Function | None) -> bool:
    """Is this what the function answers, with nothing that distinguishes a failure from an empty answer?"""
    if function is None:
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
    """The classes that hold this place, and the file with its folder."""
    for each in module.classes:
        if each.lineno <= node.lineno <= (each.end_lineno or 0):
            yield each.name
    yield from module.source.path.replace("\\", "/").removesuffix(".py").rsplit("/", 2)[-2:]
