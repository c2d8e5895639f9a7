"""Types that threads decode are known to msgspec before there are threads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import kfm
from kfm import decoders
from kfm.decoders import prepare_decoders
from kfm.pipelines.workers import ThreadWorkers
from kfm.service.runner import ServiceOptions, ServiceThreads
from kfm.web.api.operation_table import request_bodies

SOURCE = Path(kfm.__file__).parent
# Functions that decode a type which they are given; their callers are looked at instead.
GIVEN = {"converted", "shaped", "_converted", "body_of"}
# Types that are known only when it runs: what functions of a pipeline take; in `config` plain numbers and
# texts; a plan or its choice for `kfm replay`, which has no threads by then.
DYNAMIC = {
    ("cli/replay_options.py", "kind"),
    ("pipelines/workers.py", "kind"),
    ("decoders.py", "kind"),
    ("config/loader.py", "_TYPES[kind]"),
    ("config/loader.py", "kind"),  # entries of the cache, which are listed
}
# Decoded by commands that have no threads, by a child before it runs nodes, and while a module is imported.
ALONE = {
    "kfm.policy.fixtures",
    "kfm.storage.backup",
    "kfm.pipelines.worker_child",
    "kfm.pipelines.dask_host",
}


def _decoded(tree: ast.Module) -> Iterator[ast.expr]:
    """The types that a module decodes, as they are written there."""
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name in GIVEN
        for node in ast.walk(function)
    }
    real = _real_names(tree)
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or id(call) in inside:
            continue
        first, dot, rest = ast.unparse(call.func).partition(".")
        name = real.get(first, first) + dot + rest
        keywords = {each.arg: each.value for each in call.keywords}
        if re.fullmatch(r"msgspec\.(convert|\w+\.(decode|Decoder))", name) and "type" in keywords:
            yield keywords["type"]
        elif name == "msgspec.convert" or (name == "shaped" and len(call.args) > 1):
            yield call.args[1]
        elif name.rpartition(".")[2] == "converted" and len(call.args) > 2:
            yield call.args[2]
        elif re.fullmatch(r"msgspec\.\w+\.Decoder", name) and call.args:
            yield call.args[0]


def _real_names(tree: ast.Module) -> dict[str, str]:
    """What the names that a module imports from msgspec stand for."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.asname: each.name for each in node.names if each.asname}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "msgspec":
            names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return names


def _structs(kind: Any) -> Iterator[type]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for inner in get_args(kind):
        yield from _structs(inner)


def test_every_type_that_is_decoded_is_prepared() -> None:
    """Whatever record kfm decodes anywhere is among those that are prepared before threads start."""
    prepared = prepare_decoders(request_bodies())
    forgotten, seen = [], 0
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        module = "kfm." + name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for kind in _decoded(ast.parse(path.read_text())):
            written = ast.unparse(kind)
            if (name, written) in DYNAMIC or module in ALONE:
                continue
            known = eval(written, vars(import_module(module)))
            seen += 1
            forgotten += [f"{module}: {one.__name__}" for one in _structs(known) if one not in prepared]
    assert seen > 40
    assert forgotten == []


@pytest.mark.parametrize(
    "source",
    [
        "import msgspec\nmsgspec.json.Decoder(Late)",
        "import msgspec\ndef read(): return msgspec.json.Decoder(type=Late)",
        "import msgspec as m\ndef read(data): return m.json.decode(data, type=Late)",
        "from msgspec import json\ndef read(data): return json.decode(data, type=Late)",
        "from msgspec.json import Decoder as D\ndef read(): return D(Late)",
        "from msgspec import convert\ndef read(data): return convert(data, Late)",
    ],
)
def test_a_decoder_is_seen_however_it_is_written(source: str) -> None:
    """The check above finds a type that a function decodes by itself, under whatever name msgspec goes."""
    assert [ast.unparse(kind) for kind in _decoded(ast.parse(source))] == ["Late"]


STARTS = """
import os, sys, threading
import msgspec
from kfm import decoders
from kfm.web.api.operation_table import request_bodies

bodies = request_bodies()
records = [*decoders._records(), *bodies]  # imported, and decoded by none
ended = []
for start in range(100):
    child = os.fork()
    if not child:
        sys.setswitchinterval(1e-6)
        decoders.prepare_decoders(bodies)
        ready = threading.Barrier(4)

        def decode(turn):
            ready.wait()
            for kind in records[turn:] + records[:turn]:
                try:
                    msgspec.json.decode(b"{}", type=kind)
                except msgspec.ValidationError:
                    pass

        threads = [threading.Thread(target=decode, args=(turn * 7,)) for turn in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os._exit(0)
    ended.append(os.waitpid(child, 0)[1])
print(sum(status != 0 for status in ended), len(ended))
"""


@pytest.mark.req("UPD-13")
def test_a_hundred_starts_outlive_threads_that_decode_at_once() -> None:
    """Whatever the order in which threads get their turn, each first decodes what is known already: of a
    hundred processes whose threads decode every record at once, switched as often as can be, none dies."""
    done = subprocess.run([sys.executable, "-c", STARTS], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("0 100\n", 0), done.stderr


def _nothing_started(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each thread that is started: whether decoders were prepared by then."""
    monkeypatch.setattr(decoders, "_prepared", set())
    started: list[bool] = []
    monkeypatch.setattr(threading.Thread, "start", lambda _self: started.append(bool(decoders._prepared)))
    return started


def test_a_service_prepares_decoders_before_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread of `kfm serve` starts before the decoders are made."""
    started = _nothing_started(monkeypatch)

    class Serve:
        runners = 2

    class Settings:
        serve = Serve
        sources = ()

    class Loaded:
        settings = Settings

    loaded: Any = Loaded
    ServiceThreads(loaded, ServiceOptions(schedules=False, worker=False), lambda **_: nullcontext()).start()
    assert started
    assert all(started)


def test_threads_of_a_pipeline_prepare_decoders_first() -> None:
    """The pool of a pipeline's threads is made after what it was told to prepare."""
    order: list[str] = []
    context: Any = None
    with ThreadWorkers(context, 2, lambda: order.append("prepared")) as workers:
        order.append("entered" if not workers.busy else "busy")
    assert order == ["prepared", "entered"]


@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("kfm.nodd.worker_loop", "run_worker"),
        ("kfm.pipelines.run_state", "_settle"),
        ("kfm.pipelines.project", "ThreadWorkers"),
        ("kfm.cli.serve", "serve"),
        ("kfm.cli.reading_server", "serve_readers"),
    ],
)
def test_whatever_starts_threads_prepares_decoders(module: str, function: str) -> None:
    """Each way into work with threads calls the one step that prepares decoders, before any thread."""
    source = Path(str(import_module(module).__file__)).read_text()
    if function == "ThreadWorkers":
        assert source.count("ThreadWorkers(") == 1
        assert source.count("ThreadWorkers(context, jobs, prepare_decoders)") == 1
        return
    tree = ast.parse(source)
    body = next(each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == function)
    calls = [
        (each.lineno, ast.unparse(each.func))
        for each in ast.walk(body)
        if isinstance(each, ast.Call)
        and ast.unparse(each.func).rpartition(".")[2]
        in ("prepare_decoders", "start", "run", "_run", "WebApplication", "open_project")
    ]
    assert min(calls)[1] == "prepare_decoders"


def test_a_declared_call_has_read_the_table_of_circuits() -> None:
    """Two providers whose circuits open at once in two threads decode nothing for the first time."""
    script = """
import kfm
from kfm.model import contracts

@kfm.call(idempotent=True)
def plain(): ...

before = contracts.machine.cache_info().currsize

@kfm.call(provider="usgs", idempotent=True)
def guarded(): ...

info = contracts.machine.cache_info()
contracts.machine("breaker")
print(before, info.currsize, contracts.machine.cache_info().misses - info.misses)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1", "0"]


def test_records_of_nodes_are_prepared_by_the_thread_that_hands_out_work() -> None:
    """A function's record types are decoded for the first time outside its thread."""
    script = """
import sys, threading, msgspec
from kfm.pipelines import workers as working

class Given(msgspec.Struct):
    number: int

def node(given: Given) -> int: return given.number

made = []
real = msgspec.json.Decoder
class Counted:
    def __new__(cls, kind): made.append((kind.__name__, threading.current_thread().name)); return real(kind)
working.msgspec.json.Decoder = Counted
spec = type("Spec", (), {"function": staticmethod(node)})
job = type("Job", (), {"spec": spec})
working.perform = lambda job, context, cancelled: None
with working.ThreadWorkers(None, 2) as threads:
    threads.start(job); threads.start(job)
assert made == [("Given", "MainThread")], made
"""
    subprocess.run([sys.executable, "-c", script], check=True)
