"""Which loops are retries: a failure leads to the same work again, a success leads out.

A consumer, a server or a poller goes round whether or not something failed; a loop over alternatives
does other work each time. Neither is a retry.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from kfm_lint.failure_kinds import (
    NO_FAILURE,
    WAITED_TOO_LONG,
    caught,
    is_failure,
    is_not_yet,
    is_race,
    is_success,
)
from kfm_lint.index import (
    AGAIN,
    BREAK,
    NEXT,
    RAISE,
    RETURN,
    TRY_STATEMENTS,
    Function,
    Loop,
    Module,
    TryStatement,
    after,
    assigned_in,
    calls_in,
    comments_above,
    flow,
    inside,
    is_passive,
    is_remark,
    is_sleep,
    is_true,
    last,
    names_in,
    own,
)

# --- attempts: the same work again, or the next of several things ---------------------

COUNTER = re.compile(
    r"(?i)attempt|retr|tries|(^|_)try|count|^_?(n|i|k|_)$|num_|fail|error|delay|backoff|wait"
)
_SCHEDULE = re.compile(r"(?i)delay|backoff|attempt|retr(y|ies)|tries|wait|sleep|interval|pause")
_FRESH = re.compile(r"(?i)rand|free|unused|next|uuid|gen|new|choice|pop|candidate|pick|resolve|mktemp|port")


def counts_attempts(module: Module, loop: ast.For) -> bool:
    """Does this loop count attempts, rather than go through different things?"""
    name = module.names.called(loop.iter) if isinstance(loop.iter, ast.Call) else ""
    counted = name in ("range", "itertools.count", "itertools.repeat", "six.moves.range", "xrange", "trange")
    targets = _targets(loop)
    if not counted:
        words = names_in([loop.iter]) | targets
        slept = [call for call in calls_in(loop.body) if is_sleep(module.names.called(call))]
        if any(targets & names_in(list(call.args)) for call in slept):
            return True
        return any(_SCHEDULE.search(word) for word in words) and not _uses(module, loop, targets)
    if any(re.search(r"(?i)attempt|retr(y|ies)|tries|(^|_)try(_|$)", target) for target in targets):
        return True
    return targets == {"_"} or not _uses(module, loop, targets)


def _uses(module: Module, loop: ast.For, targets: set[str]) -> bool:
    """Is the loop's variable an argument of the work? Then each turn does something else."""
    for node in inside(loop.body):
        if isinstance(node, ast.Assign) and targets & names_in([node.value]):
            targets = targets | {each for each in assigned_in([node]) if not COUNTER.search(each)}
    for call in calls_in(loop.body):
        name = module.names.called(call)
        if is_passive(name) or is_sleep(name) or last(name) in ("uniform", "randint", "pow", "exp", "ldexp"):
            continue
        if targets & names_in([call.func, *call.args, *(each.value for each in call.keywords)]):
            return True
    return any(
        isinstance(node, ast.Subscript) and targets & names_in([node.slice]) for node in inside(loop.body)
    )


def does_other_work(module: Module, loop: Loop, handler: ast.ExceptHandler, trying: TryStatement) -> bool:
    """Is something else tried next? Because the handler changes an argument or a condition of the work,
    or because each turn makes its argument anew."""
    changed = {each for each in assigned_in(handler.body) | _filled(handler.body) if not COUNTER.search(each)}
    for node in loop.body:
        made = calls_in([node]) if isinstance(node, ast.Assign) else []
        if any(_FRESH.search(last(module.names.called(call))) for call in made):
            changed |= assigned_in([node])
        elif isinstance(node, ast.Assign) and isinstance(
            node.value, ast.Name | ast.Attribute | ast.Subscript
        ):
            changed |= {name for name in assigned_in([node]) if not COUNTER.search(name)}
    changed |= {each for each in assigned_in(handler.body) if _given_on(module, loop, each)}
    for node in loop.body:
        if isinstance(node, ast.Assign) and changed & names_in([node.value]):
            changed |= assigned_in([node])
    changed -= {"self", "cls"}
    # `client = connect()` in a handler renews what the work is done with; the work stays the same.
    renewed = {
        name
        for node in inside(handler.body)
        if isinstance(node, ast.Assign) and calls_in([node.value])
        for name in assigned_in([node])
    }
    turns = _targets(loop) if isinstance(loop, ast.For) else set()
    for each in inside(trying.body):
        if isinstance(each, ast.If | ast.IfExp):
            if (changed | turns) & names_in([each.test]) and not _only_waits(module, each):
                return True
        elif isinstance(each, ast.Call) and not is_remark(module.names.called(each)):
            given = [*each.args, *(keyword.value for keyword in each.keywords)]
            if (changed - turns) & names_in(given) or _root(each.func) in changed - turns - renewed:
                return True
            if _chosen_by(each.func) & (turns | assigned_in(handler.body)) or _draws(module, given):
                return True
    return False


def _given_on(module: Module, loop: Loop, name: str) -> bool:
    """`Device(delay=delay)`: a wait that is passed to the work, not one between the attempts"""
    if not re.search(r"(?i)delay|wait|timeout", name) or re.search(r"(?i)attempt|retr|tries|count", name):
        return False
    return any(
        name in names_in([each.value for each in call.keywords])
        for call in calls_in(loop.body)
        if not is_sleep(module.names.called(call)) and not is_remark(module.names.called(call))
    )


def _root(node: ast.expr) -> str:
    """`current.parent.resolve` → `current`"""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _chosen_by(node: ast.expr) -> set[str]:
    """`hosts[turn].connect` → `turn`: which of several is asked"""
    return names_in([each.slice for each in ast.walk(node) if isinstance(each, ast.Subscript)])


def _draws(module: Module, given: list[ast.expr]) -> bool:
    """`bind(random_port())`: each turn with an argument of its own"""
    return any(
        re.search(r"(?i)rand|uuid|mktemp", last(module.names.called(call))) for call in calls_in(given)
    )


def _only_waits(module: Module, branch: ast.If | ast.IfExp) -> bool:
    names = [module.names.called(call) for call in calls_in([branch])]
    return all(is_sleep(name) or is_remark(name) for name in names)


def _targets(loop: ast.For) -> set[str]:
    return {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}


def _filled(block: list[ast.stmt]) -> set[str]:
    """`groups[:] = groups[:-1]`, `options["size"] //= 2`, `hosts.pop()`"""
    found = set()
    for node in inside(block):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            found |= names_in([node.value])
    return found


# --- loops ----------------------------------------------------------------------------

_POLLS = frozenset(
    "get get_nowait recv recvfrom recv_into read readline accept poll select wait wait_for receive result "
    "get_message join next_event popleft pop blpop brpop fetch_message acquire __next__ next anext expect "
    "flock lockf lock".split()
)
_ASKS = re.compile(
    r"(?i)^(a|raw_|\w*_)?input$|prompt|getpass|getkey|getch$|^ask(_|$)|^confirm$|^pause$|^cmdloop$|interview|question"
)
_WAITS_FOR = re.compile(
    r"(?i)(^|_)(wait|poll|await|until|drain|ready|readiness|watch|monitor|keep_?alive|heartbeat|probe|listen)|^_*(is|test|check)_"
)
_DECLARED_WAIT = re.compile(
    r"(?i)\bpoll|\bwait(ing|s)? (for|until|till)\b|\buntil\b.*\b(ready|up|available|exists?|starts?)\b"
)
_WAITING = re.compile(r"\b(still waiting|awaiting)\b|\bwaiting( %\S+| \{[^}]*\}s?)? (for|until)\b")
_DECODES = re.compile(r"^_*(decode|parse|deseriali[sz]e|unpack|unmarshal)(_|$)")
_READY = re.compile(r"(?i)health|/ready|readyz|livez|is_?ready|is_?alive|is_?up\b|^ready$")
_POLLING = re.compile(r"(?i)poll|poke")
_NOT_NOW = frozenset(
    "EINTR EAGAIN EWOULDBLOCK EADDRINUSE EINPROGRESS ENOENT EEXIST EINVAL ESRCH EBADF".split()
)
_CONVERSIONS = frozenset(
    "int float bool str bytes len next iter getattr setattr isinstance range loads dumps decode encode pop "
    "index remove strptime fromisoformat list dict tuple set sorted open_new split strip "
    "group match import_module __import__ ord chr rsplit partition lower upper startswith endswith replace "
    "timestamp isoformat strftime astype signature getuser append items keys values join extend copy update "
    "setdefault hash id vars dir callable".split()
)


class Failure(NamedTuple):
    """One way in which a turn of the loop fails and is tried again."""

    node: ast.ExceptHandler | ast.If
    body: list[ast.stmt]  # the branch itself
    then: list[ast.stmt]  # what runs after it, before the next turn
    types: list[str]  # exceptions by name; empty for everything, or for an answer


class Retry(NamedTuple):
    """A loop that retries."""

    loop: Loop
    function: Function | None
    work: list[ast.stmt]  # what is attempted
    failures: list[Failure]

    @property
    def is_blanket(self) -> bool:
        return any(isinstance(each.node, ast.ExceptHandler) and not each.types for each in self.failures)


def is_lost_race(failure: Failure) -> bool:
    """A lost race, by the exception's name or by what the handler lets through."""
    if failure.types and all(map(is_race, failure.types)):
        return True
    return any(is_race(name) for name in names_in(failure.body) if name.endswith(("Error", "Exception")))


def retries(module: Module) -> list[Retry]:
    return [
        found for loop, function in module.loops if (found := _as_retry(module, loop, function)) is not None
    ]


def _as_retry(module: Module, loop: Loop, function: Function | None) -> Retry | None:
    if isinstance(loop, ast.AsyncFor):
        return None
    if isinstance(loop, ast.While) and _is_sleep_statement(module, loop.body[0]):
        return None  # something that happens every so often
    statements = own(loop)
    tries = [node for node in statements if isinstance(node, TRY_STATEMENTS) and node.handlers]
    answers = [node for node in statements if isinstance(node, ast.If)]
    if not tries and not answers:
        return None
    if isinstance(loop, ast.For) and not counts_attempts(module, loop):
        return None
    if _is_wait(module, loop, function) or _takes_next(module, loop):
        return None
    work: list[ast.stmt] = []
    failures: list[Failure] = []
    for node in tries:
        found = _from_handlers(module, loop, node)
        failures += found
        work = work or (node.body if found else [])
    answered = [each for node in answers if (each := _from_answer(module, loop, node)) is not None]
    if answered and not work:
        work = loop.body
    failures += answered
    if not failures or _says_it_waits(module, loop):
        return None
    return Retry(loop, function, work, failures)


def _says_it_waits(module: Module, loop: Loop) -> bool:
    """In a comment at its head, or in a message."""
    said = [*comments_above(module.source.lines, loop.lineno), module.source.lines[loop.lineno - 1]]
    return any(map(_DECLARED_WAIT.search, said)) or _WAITING.search(module.text_of(loop)) is not None


def _takes_next(module: Module, loop: Loop) -> bool:
    """`message = queue.get()` at the beginning of each turn: something else each time."""
    first = loop.body[0]
    if not isinstance(loop, ast.While) or not isinstance(first, ast.Assign):
        return False
    value = first.value.value if isinstance(first.value, ast.Await) else first.value
    if not isinstance(value, ast.Call) or value.args or value.keywords:
        return False
    return last(module.names.called(value)) in _POLLS


def _is_sleep_statement(module: Module, node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    value = value.value if isinstance(value, ast.Await) else value
    return isinstance(value, ast.Call) and is_sleep(module.names.called(value))


def _is_wait(module: Module, loop: Loop, function: Function | None) -> bool:
    """Waiting for something to come up, or for a person to type, is no retry of work."""
    if function is not None and (_WAITS_FOR.search(function.name) or function.name.startswith("test")):
        return True
    if function is not None and function.name in ("__next__", "__anext__") and not _sleeps(module, loop):
        return True  # the next record, after one that could not be had
    for call in calls_in(loop.body):
        name = module.names.called(call)
        if _ASKS.search(last(name)) or last(name) in ("flock", "lockf", "locking"):
            return True
        if is_sleep(name) and any(_POLLING.search(word) for word in names_in(list(call.args))):
            return True
        if _is_poll(name, call) and any(each.arg == "timeout" for each in call.keywords) and "." in name:
            return True
    return any(
        (isinstance(node, ast.Constant) and isinstance(node.value, str) and _READY.search(node.value))
        or (isinstance(node, ast.Attribute) and _READY.search(node.attr))
        or (isinstance(node, ast.Name) and _READY.search(node.id))
        for node in inside(loop.body)
    )


def _sleeps(module: Module, loop: Loop) -> bool:
    return any(is_sleep(module.names.called(call)) for call in calls_in(loop.body))


# --- exceptions ----------------------------------------------------------------------


def _from_handlers(module: Module, loop: Loop, node: TryStatement) -> list[Failure]:
    if not is_work(module, node.body):
        return []
    rest = after(loop, node)
    if rest is None:
        return []
    success = node.body + node.orelse + rest
    if not _success_leads_out(module, loop, node, success):
        return []
    found = []
    for handler in node.handlers:
        types = caught(module.names, handler)
        if types and all(last(each) in NO_FAILURE for each in types):
            continue
        if types and all(is_not_yet(each) for each in types):
            continue
        if _only_polls(module, node, types) or does_other_work(module, loop, handler, node):
            continue
        if names_in(handler.body) & _NOT_NOW:  # the kernel asks for the call again, or for another one
            continue
        ends = flow(handler.body)
        then = node.finalbody + rest if NEXT in ends else []
        if then and _decides_later(loop, node, handler, then):
            continue
        if NEXT in ends:
            ends = (ends - {NEXT}) | flow(then)
        if ends & AGAIN:
            found.append(Failure(handler, handler.body, then, types))
    return found


def _decides_later(
    loop: Loop, trying: TryStatement, handler: ast.ExceptHandler, then: list[ast.stmt]
) -> bool:
    """`except E: result = None` … `if result is None: break`: the failure leads out after all. Likewise
    if the result was None before the attempt, and only the attempt sets it."""
    made = assigned_in(trying.body)
    before = [
        each
        for each in loop.body
        if each.lineno < trying.lineno and isinstance(each, ast.Assign) and assigned_in([each]) <= made
    ]
    for node in [*before, *inside(handler.body)]:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        for guard in then:
            if not isinstance(guard, ast.If) or name not in names_in([guard.test]):
                continue
            held = _holds(guard.test, name, node.value)
            if held is None or flow(guard.body if held else guard.orelse) & {BREAK, RETURN, RAISE}:
                return True
    return False


def _holds(test: ast.expr, name: str, value: ast.expr) -> bool | None:
    """Is the test true if the name has this value? None if it is unknown."""
    if not isinstance(value, ast.Constant):
        return None
    if isinstance(test, ast.Name) and test.id == name:
        return bool(value.value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _holds(test.operand, name, value)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == name:
        other = test.comparators[0]
        if isinstance(other, ast.Constant) and isinstance(test.ops[0], ast.Is | ast.Eq):
            return value.value is other.value or bool(value.value == other.value)
        if isinstance(other, ast.Constant) and isinstance(test.ops[0], ast.IsNot | ast.NotEq):
            return not (value.value is other.value or value.value == other.value)
    return None


def is_work(module: Module, body: list[ast.stmt]) -> bool:
    """Is there a call in it that could fail today and succeed tomorrow?"""
    for call in calls_in(body):
        name = module.names.called(call)
        if is_remark(name) or is_sleep(name) or last(name) in _CONVERSIONS or _looks_up(name, call):
            continue
        if _DECODES.match(last(name)):
            continue
        return True
    return False


def _looks_up(name: str, call: ast.Call) -> bool:
    """`settings.get("region")`, not `client.get(url)`."""
    if last(name) != "get" or not call.args:
        return False
    key = call.args[0]
    return len(call.args) == 2 or (isinstance(key, ast.Constant) and "/" not in str(key.value))


def _success_leads_out(module: Module, loop: Loop, node: TryStatement, success: list[ast.stmt]) -> bool:
    ends = flow(success)
    if not ends & {BREAK, RETURN} and not _ends_the_test(loop, node, success):
        return False
    if not ends & AGAIN or _ends_the_test(loop, node, success):
        return True
    # The way out is conditional. If success waits as failure does, the loop polls for something else.
    guards = [each for each in _guarded(success) if flow(each.body) & {BREAK, RETURN}]
    if any(is_success(each.test) and _hands_over(each) for each in guards):
        return True
    straight = [each for each in success + loop.body if not isinstance(each, ast.If | ast.Try | ast.TryStar)]
    if any(is_sleep(module.names.called(call)) for call in calls_in(straight)):
        return False
    return _nothing_after_exit(module, success)


def _hands_over(guard: ast.If) -> bool:
    """`if r.ok: return r` was after the answer; `if r.ok: return True` waited for a server to come up."""
    exits = [each for each in guard.body if isinstance(each, ast.Return)]
    return any(each.value is not None and not isinstance(each.value, ast.Constant) for each in exits)


def _guarded(block: list[ast.stmt]) -> list[ast.If]:
    return [each for each in inside(block) if isinstance(each, ast.If)]


def _nothing_after_exit(module: Module, success: list[ast.stmt]) -> bool:
    """After the conditional way out, is there no work left in this turn?"""
    for index, node in enumerate(success):
        guards = isinstance(node, ast.If) and not node.orelse and flow(node.body) & {BREAK, RETURN}
        if guards or (isinstance(node, ast.With | ast.AsyncWith) and flow([node]) & {BREAK, RETURN}):
            calls = calls_in(success[index + 1 :])
            return all(
                is_passive(name) or is_sleep(name) for name in (module.names.called(call) for call in calls)
            )
    return False


def _ends_the_test(loop: Loop, node: TryStatement, success: list[ast.stmt]) -> bool:
    """`while not done:` … `done = True`: the flag is set by success, and by nothing else."""
    if not isinstance(loop, ast.While) or is_true(loop.test):
        return False
    watched = {each for each in names_in([loop.test]) if not COUNTER.search(each)}
    if any(NEXT in flow(handler.body) for handler in node.handlers):
        success = node.body + node.orelse  # what follows is done after a failure, too
    done: set[str] = set()
    for each in success:
        held = each.body if isinstance(each, ast.With | ast.AsyncWith) else [each]
        for part in held:
            # `out, done = poll()` asks whether it is over.
            if isinstance(part, ast.Assign) and not isinstance(part.targets[0], ast.Tuple):
                done |= assigned_in([part])
    spoiled = set().union(*(assigned_in(handler.body) for handler in node.handlers))
    return bool((watched & done) - spoiled)


def _only_polls(module: Module, node: TryStatement, types: list[str]) -> bool:
    """`except Empty: continue` around `queue.get(timeout=1)` is how one waits."""
    if not types or not all(last(each) in WAITED_TOO_LONG for each in types):
        return False
    return any(_is_poll(module.names.called(call), call) for call in calls_in(node.body))


def _is_poll(name: str, call: ast.Call) -> bool:
    """`queue.get(True, 1)` waits for whatever comes; `client.get(url)` or a text asks for something."""
    if last(name) not in _POLLS:
        return False
    return last(name) != "get" or all(
        isinstance(each, ast.Constant) and not isinstance(each.value, str | bytes) for each in call.args
    )


# --- answers -------------------------------------------------------------------------


def _from_answer(module: Module, loop: Loop, node: ast.If) -> Failure | None:
    """`if response.status_code == 429: sleep(…); continue`"""
    rest = after(loop, node)
    if rest is None:
        return None
    if is_failure(node.test):
        ends = flow(node.body)
        then = rest if NEXT in ends else []
        leads_out = flow(node.orelse + rest) & {BREAK, RETURN}
        body = node.body
    elif is_success(node.test) and flow(node.body) <= {BREAK, RETURN}:
        body, then = node.orelse, rest
        ends, leads_out = flow(node.orelse), {RETURN}
    else:
        return None
    if NEXT in ends:
        ends = (ends - {NEXT}) | flow(then)
    waits = any(is_sleep(module.names.called(call)) for call in calls_in([*body, *then]))
    if not leads_out or not ends & AGAIN or (RAISE in ends and not waits):
        return None
    if not waits and not any(isinstance(each, ast.Continue) for each in body):
        return None
    return Failure(node, body, then, [])
