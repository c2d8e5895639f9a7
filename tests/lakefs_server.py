"""A stand-in for a lakeFS server: real HTTP on 127.0.0.1 over the naive model of a repository.

Every request is checked: the keys, the known address, the fields of its body. Where
lakeFS's own OpenAPI document is at hand, every request and every answer is also checked against it, and
whatever does not fit is kept in `violations`: a test that leaves any fails.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.lakefs_contract import Contract, document
from tests.lakefs_model import Refusal, Repository, Thing

ACCESS_KEY = "AKIAIOSFOLKFSSAMPLES"
SECRET_KEY = "a-secret-that-must-not-be-told"
PAGE_MAX = 1000

Query = dict[str, str]
Answer = tuple[int, Any, dict[str, str]]


class Server:
    """Started by `with serving() as server`."""

    def __init__(self, repository: Repository, page: int = PAGE_MAX) -> None:
        self.repository = repository
        self.page = page
        self.requests: list[tuple[str, str]] = []  # operation, path of the address
        self.fail: Callable[[str], int | None] = lambda _operation: None  # a status instead of an answer
        self.lose: Callable[[str], bool] = lambda _operation: False  # do it, and break off before answering
        self.contract = Contract(document())
        self.violations = self.contract.violations
        self.lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._http.server_address[1]}"

    def start(self) -> None:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_args: object) -> None:
                """Quiet."""

            def _any(self) -> None:
                server.handle(self)

            do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815

        return Handler

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        body = http.rfile.read(int(http.headers.get("Content-Length") or 0))
        try:
            operation, answer = self._answered(http, body)
        except Refusal as refusal:
            operation, answer = "", (refusal.status, refusal.body, {})
        if self.lose(operation):
            http.close_connection = True
            return
        status, content, headers = answer
        data = (
            content
            if isinstance(content, bytes)
            else b""
            if content is None
            else json.dumps(content).encode()
        )
        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        http.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            http.send_header(name, value)
        http.end_headers()
        http.wfile.write(data)

    def _answered(self, http: BaseHTTPRequestHandler, body: bytes) -> tuple[str, Answer]:
        wanted = base64.b64encode(f"{ACCESS_KEY}:{SECRET_KEY}".encode()).decode()
        if http.headers.get("Authorization") != f"Basic {wanted}":
            raise Refusal(401, "error authenticating request")
        address = urlsplit(http.path)
        query = {name: values[-1] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        for operation, method, pattern, answering in ROUTES:
            found = pattern.fullmatch(address.path.removeprefix("/api/v1"))
            if found is None or method != http.command:
                continue
            self.requests.append((operation, address.path))
            if status := self.fail(operation):
                return operation, (status, {"message": "as the test wants it"}, {"Retry-After": "1"})
            names = {name: unquote(value) for name, value in found.groupdict().items()}
            self.contract.request(operation, names, query, http.headers, body)
            if names.pop("repository") != self.repository.name:
                raise Refusal(404, "repository not found")
            try:
                with self.lock:
                    answer = answering(self, Asked(names, query, body, dict(http.headers)))
            except Refusal as refusal:
                answer = (refusal.status, refusal.body, {})
            self.contract.answer(operation, answer[0], answer[1])
            return operation, answer
        self.violations.append(f"no such operation: {http.command} {address.path}")
        raise Refusal(500, "no such operation")

    def paged(self, asked: Asked, items: list[tuple[str, Any]]) -> Answer:
        amount = min(int(asked.query.get("amount", "100")), self.page)
        after, prefix = asked.query.get("after", ""), asked.query.get("prefix", "")
        left = [
            (key, each) for key, each in items if key.startswith(prefix) and key.encode() > after.encode()
        ]
        return _page(left, amount)


class Asked:
    def __init__(self, names: dict[str, str], query: Query, body: bytes, headers: dict[str, str]) -> None:
        self.names, self.query, self.body, self.headers = names, query, body, headers

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    def says(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"


def _page(left: list[tuple[str, Any]], amount: int) -> Answer:
    shown = left[:amount]
    more = len(left) > len(shown)
    pagination = {
        "has_more": more,
        "next_offset": shown[-1][0] if more else "",
        "results": len(shown),
        "max_per_page": PAGE_MAX,
    }
    return 200, {"pagination": pagination, "results": [each for _key, each in shown]}, {}


def _stats(path: str, thing: Thing) -> dict[str, Any]:
    return {
        "path": path,
        "path_type": "object",
        "physical_address": f"local://{thing.checksum}",
        "checksum": thing.checksum,
        "size_bytes": len(thing.data),
        "mtime": 1_767_225_600,
        "metadata": dict(thing.metadata),
        "content_type": "application/octet-stream",
    }


# --- operations ------------------------------------------------------------------------------


def _get_repository(server: Server, asked: Asked) -> Answer:
    held = server.repository
    document = {
        "id": held.name,
        "creation_date": 1_767_225_600,
        "default_branch": held.default_branch,
        "storage_namespace": "local://example",
    }
    return 200, document, {}


def _list_branches(server: Server, asked: Asked) -> Answer:
    found = [
        (name, {"id": name, "commit_id": line.commit})
        for name, line in sorted(server.repository.branches.items())
        if asked.says("show_hidden") or not line.hidden
    ]
    return server.paged(asked, found)


def _create_branch(server: Server, asked: Asked) -> Answer:
    wanted = asked.document
    return (
        201,
        server.repository.create_branch(wanted["name"], wanted["source"], wanted.get("hidden", False)),
        {},
    )


def _get_branch(server: Server, asked: Asked) -> Answer:
    name = asked.names["branch"]
    return 200, {"id": name, "commit_id": server.repository.line(name).commit}, {}


def _delete_branch(server: Server, asked: Asked) -> Answer:
    server.repository.delete_branch(asked.names["branch"])
    return 204, None, {}


def _list_tags(server: Server, asked: Asked) -> Answer:
    tags = sorted(server.repository.tags.items())
    return server.paged(asked, [(name, {"id": name, "commit_id": commit}) for name, commit in tags])


def _create_tag(server: Server, asked: Asked) -> Answer:
    wanted = asked.document
    made = server.repository.create_tag(wanted["id"], wanted["ref"])
    return 201, {"id": wanted["id"], "commit_id": made}, {}


def _get_tag(server: Server, asked: Asked) -> Answer:
    name = asked.names["tag"]
    if name not in server.repository.tags:
        raise Refusal(404, "tag not found")
    return 200, {"id": name, "commit_id": server.repository.tags[name]}, {}


def _delete_tag(server: Server, asked: Asked) -> Answer:
    if server.repository.tags.pop(asked.names["tag"], None) is None:
        raise Refusal(404, "tag not found")
    return 204, None, {}


def _get_rules(server: Server, asked: Asked) -> Answer:
    rules = server.repository.rules
    return 200, [{"pattern": rule} for rule in rules], {"ETag": f'"{len(rules)}-{"".join(rules)}"'}


def _set_rules(server: Server, asked: Asked) -> Answer:
    rules = server.repository.rules
    if asked.headers.get("If-Match", "") not in ("", f'"{len(rules)}-{"".join(rules)}"'):
        raise Refusal(412, "precondition failed")
    server.repository.rules = [rule["pattern"] for rule in asked.document]
    return 204, None, {}


def _log(server: Server, asked: Asked) -> Answer:
    line = server.repository.log(asked.names["ref"], asked.says("first_parent"))
    found = [each.document() for each in line]
    after = asked.query.get("after", "")
    start = 1 + [each["id"] for each in found].index(after) if after else 0
    amount = min(int(asked.query.get("amount", "100")), server.page)
    return _page([(str(each["id"]), each) for each in found[start:]], amount)


def _get_commit(server: Server, asked: Asked) -> Answer:
    return 200, server.repository.find(asked.names["commitId"]).document(), {}


def _commit(server: Server, asked: Asked) -> Answer:
    wanted = asked.document
    if not wanted["message"]:
        raise Refusal(400, "commit message is required")
    made = server.repository.commit(
        asked.names["branch"], wanted["message"], wanted.get("metadata", {}), wanted.get("allow_empty", False)
    )
    return 201, made.document(), {}


def _revert(server: Server, asked: Asked) -> Answer:
    wanted = asked.document
    server.repository.revert(asked.names["branch"], wanted["ref"], wanted["parent_number"])
    return 204, None, {}


def _merge(server: Server, asked: Asked) -> Answer:
    wanted = asked.document
    made = server.repository.merge(
        asked.names["sourceRef"],
        asked.names["destinationBranch"],
        wanted.get("message") or "Merge",
        wanted.get("metadata", {}),
        wanted.get("strategy", ""),
        wanted.get("squash_merge", False),
        wanted.get("allow_empty", False),
    )
    return 200, {"reference": made.id}, {}


def _merge_base(server: Server, asked: Asked) -> Answer:
    source = server.repository.find(asked.names["sourceRef"]).id
    target = server.repository.find(asked.names["destinationBranch"]).id
    document = {
        "source_commit_id": source,
        "destination_commit_id": target,
        "base_commit_id": server.repository.base(source, target).id,
    }
    return 200, document, {}


def _diff(server: Server, asked: Asked) -> Answer:
    three_dot = asked.query.get("type", "three_dot") == "three_dot"
    found = server.repository.diff(asked.names["leftRef"], asked.names["rightRef"], three_dot)
    documents = [(path, {"path": path, "type": kind, "path_type": "object"}) for path, kind in found]
    return server.paged(asked, documents)


def _list_objects(server: Server, asked: Asked) -> Answer:
    tree = server.repository.tree_at(asked.names["ref"])
    return server.paged(asked, [(path, _stats(path, tree[path])) for path in sorted(tree, key=str.encode)])


def _thing(server: Server, asked: Asked) -> Thing:
    found = server.repository.tree_at(asked.names["ref"]).get(asked.query["path"])
    if found is None:
        raise Refusal(404, "not found")
    return found


def _stat(server: Server, asked: Asked) -> Answer:
    return 200, _stats(asked.query["path"], _thing(server, asked)), {}


def _get_object(server: Server, asked: Asked) -> Answer:
    return 200, _thing(server, asked).data, {}


def _upload(server: Server, asked: Asked) -> Answer:
    prefix = "x-lakefs-meta-"
    given = {name.lower(): value for name, value in asked.headers.items()}
    metadata = tuple(
        sorted((name.removeprefix(prefix), value) for name, value in given.items() if name.startswith(prefix))
    )
    thing = Thing(asked.body, metadata)
    server.repository.stage(asked.names["branch"], asked.query["path"], thing)
    return 201, _stats(asked.query["path"], thing), {}


def _delete_objects(server: Server, asked: Asked) -> Answer:
    paths = asked.document["paths"]
    if len(paths) > PAGE_MAX:
        raise Refusal(500, "max objects to delete per request is 1000")
    for path in paths:
        server.repository.stage(asked.names["branch"], path, None)
    return 200, {"errors": []}, {}


_BASE = "/repositories/{repository}"
_TABLE: list[tuple[str, str, str, Callable[[Server, Asked], Answer]]] = [
    ("getRepository", "GET", "", _get_repository),
    ("listBranches", "GET", "/branches", _list_branches),
    ("createBranch", "POST", "/branches", _create_branch),
    ("getBranch", "GET", "/branches/{branch}", _get_branch),
    ("deleteBranch", "DELETE", "/branches/{branch}", _delete_branch),
    ("listTags", "GET", "/tags", _list_tags),
    ("createTag", "POST", "/tags", _create_tag),
    ("getTag", "GET", "/tags/{tag}", _get_tag),
    ("deleteTag", "DELETE", "/tags/{tag}", _delete_tag),
    ("getBranchProtectionRules", "GET", "/settings/branch_protection", _get_rules),
    ("setBranchProtectionRules", "PUT", "/settings/branch_protection", _set_rules),
    ("logCommits", "GET", "/refs/{ref}/commits", _log),
    ("getCommit", "GET", "/commits/{commitId}", _get_commit),
    ("commit", "POST", "/branches/{branch}/commits", _commit),
    ("revertBranch", "POST", "/branches/{branch}/revert", _revert),
    ("mergeIntoBranch", "POST", "/refs/{sourceRef}/merge/{destinationBranch}", _merge),
    ("findMergeBase", "GET", "/refs/{sourceRef}/merge/{destinationBranch}", _merge_base),
    ("diffRefs", "GET", "/refs/{leftRef}/diff/{rightRef}", _diff),
    ("listObjects", "GET", "/refs/{ref}/objects/ls", _list_objects),
    ("statObject", "GET", "/refs/{ref}/objects/stat", _stat),
    ("getObject", "GET", "/refs/{ref}/objects", _get_object),
    ("uploadObject", "POST", "/branches/{branch}/objects", _upload),
    ("deleteObjects", "POST", "/branches/{branch}/objects/delete", _delete_objects),
]


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", _BASE + path))


ROUTES = [(operation, method, _pattern(path), answer) for operation, method, path, answer in _TABLE]
PATHS = {operation: (method.lower(), _BASE + path) for operation, method, path, _answer in _TABLE}


@contextlib.contextmanager
def serving(repository: Repository | None = None, *, page: int = PAGE_MAX) -> Iterator[Server]:
    """At its end nothing may have been asked or answered that the contract does not know."""
    server = Server(repository or Repository(), page)
    server.start()
    try:
        yield server
    finally:
        server.stop()
    assert not server.violations, server.violations[:5]
