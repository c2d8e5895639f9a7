"""From configured targets to projections: the built-in kinds, and those of `kfm.publishers`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from kfm.model.errors import ConfigError, PluginConflict
from kfm.model.records import Promotion
from kfm.model.settings import Target
from kfm.ports import Bucket, Files, Ids, Objects, Projection

if TYPE_CHECKING:
    from kfm.model.versions import Version
    from kfm.ports import BranchWriter, Clock, Progress

GROUP = "kfm.publishers"
PUBLISHED = "published"  # the branch of a branch target that names none


@dataclass(frozen=True, kw_only=True)
class TargetParts:
    """What projections are made with. Relative paths are below `root`, the configuration's folder."""

    root: str
    files: Files
    objects: Objects
    ids: Ids
    bucket: Callable[[str, Mapping[str, str]], tuple[Bucket, str]]  # address, options → bucket, prefix in it
    append: Callable[[str, bytes], None]  # to a file of the CI job
    # The bucket behind its provider's circuit.
    circuit_guard: Callable[[Target, Bucket], Bucket] = lambda _target, bucket: bucket
    github_output: str | None = None
    github_summary: str | None = None
    branches: Callable[[], BranchWriter] | None = None  # wherever the configuration says that they are
    secret: Callable[[str], str] = str  # what a reference in the options stands for
    clock: Clock | None = None
    progress: Progress | None = None
    # Makes one request to the target's provider, through its circuit.
    call: Callable[[Target, Callable[[], Any]], Any] = lambda _target, work: work()


Factory = Callable[[str, Target, TargetParts], Projection]


def build(targets: Iterable[Target], surroundings: TargetParts) -> list[Projection]:
    """One projection for each target, in order; their names are unique."""
    targets = tuple(targets)
    names = target_names(targets)
    return [
        _factory(target.kind)(name, target, surroundings) for name, target in zip(names, targets, strict=True)
    ]


def target_names(targets: Iterable[Target]) -> list[str]:
    """A target's own name, or its kind. The database remembers by it what a target shows."""
    names = [target.name or target.kind for target in targets]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError(f"Two targets are called {twice[0]}: give each a `name`.")
    return names


def _factory(kind: str) -> Factory:
    if kind in BUILT_IN:
        return BUILT_IN[kind]  # without reading entry points: start-up is measured
    found = _plugins().get(kind, [])
    if not found:
        known = ", ".join(sorted(BUILT_IN.keys() | _plugins().keys()))
        raise ConfigError(f"There is no publishing target of the kind {kind!r}; there are {known}.")
    if len(found) > 1:
        raise PluginConflict(f"{GROUP}: {kind} comes from {_origins(found)}.")
    loaded: Factory = found[0].load()
    return loaded


def _plugins() -> dict[str, list[Any]]:
    from importlib import metadata  # imported late: start-up is measured

    found: dict[str, list[Any]] = {}
    for entry in metadata.entry_points(group=GROUP):
        found.setdefault(entry.name, []).append(entry)
    return found


def _origins(entries: list[Any]) -> str:
    return " and ".join(
        sorted(f"{entry.dist.name if entry.dist else '?'} ({entry.value})" for entry in entries)
    )


# --- built in ------------------------------------------------------------------------


def _local(name: str, target: Target, around: TargetParts) -> Projection:
    from kfm.publish.targets.folder import LocalTree
    from kfm.publish.targets.folder_builder import Linking

    linking = target.options.get("link", "versions")
    if linking not in get_args(Linking):
        raise ConfigError(f"Target {name}: link is one of {', '.join(get_args(Linking))}, not {linking!r}.")
    _require_options(name, target, {"link"})
    path = _below(around.root, _require(name, "path", target.path))
    return LocalTree(name, around.files, around.objects, around.ids, path, linking=linking)  # type: ignore[arg-type]


def _s3(name: str, target: Target, around: TargetParts) -> Projection:
    from kfm.model.bucket_options import LATEST, client_options, latest_problem
    from kfm.publish.targets.s3 import BucketTree

    if problem := latest_problem(target.options):
        raise ConfigError(f"Target {name}: {problem}.")
    bucket, prefix = around.bucket(_require(name, "url", target.url), client_options(target.options))
    return BucketTree(
        name,
        around.circuit_guard(target, bucket),
        around.objects,
        prefix,
        around.progress,
        latest=target.options.get(LATEST, "documents"),  # type: ignore[arg-type]
    )


def _github_actions(name: str, target: Target, around: TargetParts) -> Projection:
    from kfm.publish.targets.github_actions import GithubActions

    _require_options(name, target, set())
    return GithubActions(
        name,
        around.files,
        around.objects,
        around.ids,
        _below(around.root, target.path or "artifacts/published"),
        append=around.append,
        output_path=around.github_output,
        summary_path=around.github_summary,
    )


def _branch(name: str, target: Target, around: TargetParts) -> Projection:
    from kfm.model.branches import check_name
    from kfm.publish.targets.branch import BranchTree

    _require_options(name, target, {"branch"})
    branch = target.options.get("branch", PUBLISHED)
    check_name(branch)
    assert around.branches is not None, "targets were made without branches"
    return BranchTree(name, around.branches, around.objects, branch)


def _stac(name: str, target: Target, around: TargetParts) -> Projection:
    from kfm.objects.http_client import HttpxClient
    from kfm.publish.targets.catalogue import StacCatalogue
    from kfm.sinks.stac_api import StacApi

    url, token, assets = _catalogue(name, target, around)
    assert around.clock is not None, "targets were made without a clock"
    api = StacApi(url, token, client=HttpxClient(), clock=around.clock)
    return StacCatalogue(name, api, partial(around.call, target), assets)


def _dcat(name: str, target: Target, around: TargetParts) -> Projection:
    from kfm.objects.http_client import HttpxClient
    from kfm.publish.targets.catalogue import DcatRecord
    from kfm.sinks.http_document import HttpDocuments

    url, token, assets = _catalogue(name, target, around)
    assert around.clock is not None, "targets were made without a clock"
    documents = HttpDocuments(token, client=HttpxClient(), clock=around.clock)
    return DcatRecord(name, documents, partial(around.call, target), url, assets)


def _catalogue(name: str, target: Target, around: TargetParts) -> tuple[str, str | None, str]:
    """Its address, its token, and where the files are read that it names."""
    _require_options(name, target, {"token", "assets"})
    url = _require(name, "url", target.url)
    token = target.options.get("token")
    assets = _require(name, "options.assets", target.options.get("assets"))
    return url, None if token is None else around.secret(token), assets


def _noop(name: str, target: Target, around: TargetParts) -> Projection:  # noqa: ARG001

    return Noop(name)


BUILT_IN: dict[str, Factory] = {
    "branch": _branch,
    "dcat": _dcat,
    "github-actions": _github_actions,
    "local": _local,
    "noop": _noop,
    "s3": _s3,
    "stac": _stac,
}


def _require(name: str, field: str, value: str | None) -> str:
    if not value:
        raise ConfigError(f"Target {name} needs `{field}`.")
    return value


def _require_options(name: str, target: Target, known: set[str]) -> None:
    unknown = sorted(target.options.keys() - known)
    if unknown:
        raise ConfigError(f"Target {name}: there is no option {unknown[0]!r} for the kind {target.kind}.")


def _below(root: str, path: str) -> str:
    return path if path.startswith("/") else f"{root.rstrip('/')}/{path}"


class Noop:
    def __init__(self, name: str) -> None:
        self.name = name

    def project(
        self,
        dataset_id: str,  # noqa: ARG002
        head: Callable[[], tuple[Promotion, Version] | None],
        known: Callable[[int], str | None] | None = None,  # noqa: ARG002
    ) -> int | None:
        found = head()
        return found[0].sequence if found else None

    def purge(
        self,
        dataset_id: str,
        gone: Sequence[Promotion],
        blobs: Collection[str],
        check: Callable[[], None] = lambda: None,
    ) -> int:
        del dataset_id, gone, blobs, check
        return 0
