"""KFM104: work whose repetition shows, retried without a word on why that is safe."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kfm_lint.findings import Mark
from kfm_lint.index import Module, Names, calls_in, inside, last

# Anything that says that a second execution has no second effect.
_DECLARED = re.compile(
    r"idempot|dedup|client_?(request_?)?token|clientrequesttoken|on conflict|on duplicate key|upsert"
    r"|merge into"
    r"|insert or (ignore|replace)|if_none_match|if-none-match|if_match|if-match|ifnotexists|if not exists"
    r"|transactional_id|exactly.once|insert_id|insertid|row_ids|x-request-id|request_id|requestid|skip_duplicates"
    r"|ignore_conflicts|unique_key|message_id|msgid|nonce|external_id"
)
_METHODS = frozenset(
    "sendmail send_mail send_email send_message send_messages send_message_batch publish basic_publish "
    "put_record put_records put_record_batch put_events insert_one insert_many insert_rows insert_rows_json "
    "produce send_and_wait run_instances start_execution create_payment charge transfer chat_postmessage "
    "create_charge place_order submit_order publish_batch bulk_create bulk_insert_mappings".split()
)
_HTTP = re.compile(
    r"(?i)^(requests|httpx|aiohttp|\w*session\w*|\w*client\w*|\w*http\w*|conn|connection|api|self|s|c|\(\))$"
)
_ONLY_ASKS = re.compile(
    r"oauth|access_token|grant_type|prompt|embedding|text2vec|completion|max_tokens|inference"
)
_OUTSIDE = re.compile(
    r"(?i)sns|topic|producer|channel|client|pub_?sub|publisher|mqtt|redis|queue|exchange|broker|nats|amqp|kafka|js$"
)
_EFFECT = re.compile(
    r"(?i)(^|_)(send|create|add|register|insert|update|upload|publish|submit|announce|notify|commit|write"
    r"|store|save|rename|copy|move|run|start|launch|trigger|deliver|import|push|enqueue|charge|pay|order|change"
    r"|assign|invite|approve|apply|emit)(?!_(query|search))(_|$)"
)
READS_SOMEWHERE = re.compile(
    r"(?i)fetch|download|search|quer(y|ies)|(^|_)read|lookup|scrape|crawl|token|login|(^|_)auth|credential"
)
_READS = re.compile(
    r"^_*(get|fetch|search|find|list|query|read|download|lookup|describe|count|scan|select)(_|$)"
)
_INSERT = re.compile(r"(?is)^\s*insert\s+into\b")
_SEARCH = re.compile(
    r"(?i)search|query|fetch|graphql|token|oauth|auth|login|predict|embedding|completion|lookup|batchget|refresh"
)


def effects(names: Names, body: list[ast.stmt]) -> Iterator[tuple[ast.Call, str]]:
    """Calls in this block that must not happen twice by accident, each with a word for it."""
    for call in calls_in(body):
        name = names.called(call)
        method = last(name)
        owner = name.rpartition(".")[0].rpartition(".")[2] or name.rpartition(".")[0]
        if method in ("post", "patch") and owner and _HTTP.match(owner):
            if not _reads_only(call):
                yield call, f"an HTTP {method.upper()}"
        elif method == "request" and owner and _HTTP.match(owner) and _verb(call) in ("POST", "PATCH"):
            if not _reads_only(call):
                yield call, f"an HTTP {_verb(call)}"
        elif method.lower() in _METHODS and owner:
            yield call, f"`{method}`"
        elif method in ("execute", "executemany", "execute_async") and _inserts(call):
            yield call, "an INSERT"


def check_effects(module: Module, body: list[ast.stmt], context: ast.AST | None) -> Iterator[Mark]:
    found = next(effects(module.names, body), None)
    if found is None or is_declared(module, context) or _ONLY_ASKS.search(module.text_of(context)):
        return
    if isinstance(context, ast.FunctionDef | ast.AsyncFunctionDef) and _READS.match(context.name):
        return
    call, what = found
    message = f"This retries {what}, and nothing says that doing it twice is harmless."
    sure = _changes(context, body, call) if what == "an HTTP POST" else _leaves(module.names.called(call))
    yield Mark("KFM104", call, message, sure)


def _leaves(name: str) -> bool:
    """`registry.publish()` stays in the process; `sns.publish()` leaves it."""
    return last(name) != "publish" or _OUTSIDE.search(name.rpartition(".")[0]) is not None


def _changes(context: ast.AST | None, body: list[ast.stmt], call: ast.Call) -> bool:
    """The response is not used, or the function says that it changes something: not every POST does."""
    if any(isinstance(node, ast.Expr) and _awaited(node.value) is call for node in inside(body)):
        return True
    return _EFFECT.search(getattr(context, "name", "")) is not None


def _awaited(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Await) else node


def is_declared(module: Module, context: ast.AST | None) -> bool:
    return _DECLARED.search(module.text_of(context)) is not None


def _verb(call: ast.Call) -> str:
    given = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "method")]
    for each in given:
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            return each.value.upper()
    return ""


def _reads_only(call: ast.Call) -> bool:
    """Searches, queries and token requests are POSTs that change nothing."""
    words = [
        node.value
        if isinstance(node, ast.Constant)
        else node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        for argument in [*call.args, *(each.value for each in call.keywords if each.arg == "url")]
        for node in ast.walk(argument)
        if isinstance(node, ast.Attribute | ast.Name)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    ]
    return any(_SEARCH.search(str(word)) for word in words)


def _inserts(call: ast.Call) -> bool:
    for argument in call.args[:1]:
        for node in ast.walk(argument):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _INSERT.match(node.value):
                return True
    return False
