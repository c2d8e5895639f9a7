"""A version as files for `actions/upload-artifact`, with the job's outputs and summary.

    <folder>/<dataset>/00000012-0123456789ab/…    name this folder (output `path`) as the artifact
    <folder>/<dataset>/.reported-00000012-…       its outputs and summary have been written

A job's output file can only be appended to, so this is for one process of one job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice

from kfm.model.dataset_names import RENAMED
from kfm.model.errors import TargetUnavailable
from kfm.model.quantities import readable_size
from kfm.model.records import Promotion
from kfm.model.versions import Version
from kfm.ports import Files, Ids, Objects
from kfm.publish.catalogue import tombstone_of
from kfm.publish.publisher import MASKED
from kfm.publish.targets.folder import HeadReader, require_folder_name, sequence_of, version_name
from kfm.publish.targets.folder_builder import VersionBuilder, remove_tree
from kfm.publish.targets.folder_plan import FolderPlan

ROWS_MAX = 50
DELIMITER_TRIES_MAX = 10
_REPORTED = ".reported-"
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|<>&~-])")

Append = Callable[[str, bytes], None]


class GithubActions:
    """Stages the head's files and sets the job's outputs, once for each sequence."""

    def __init__(
        self,
        name: str,
        files: Files,
        objects: Objects,
        ids: Ids,
        folder: str,
        *,
        append: Append,
        output_path: str | None,
        summary_path: str | None,
    ) -> None:
        self.name = name
        self._folder = folder.rstrip("/")
        self._files = files.below(self._folder)
        self._objects = objects
        self._ids = ids
        self._append = append
        self._output_path = output_path
        self._summary_path = summary_path

    def project(
        self,
        dataset_id: str,
        head: HeadReader,
        known: Callable[[int], str | None] | None = None,  # noqa: ARG002
    ) -> int | None:
        folder = f"{self._folder}/{require_folder_name(dataset_id)}"
        found = head()
        if found is None:
            return None
        try:
            return self._show(folder, *found)
        except OSError as error:
            raise TargetUnavailable(
                f"{self.name}: {error.strerror or error} ({error.filename or folder})."
            ) from error

    def _show(self, folder: str, promotion: Promotion, version: Version) -> int:
        self._files.make_dirs(folder)
        reported = self._reported(folder)
        if reported is not None and reported >= promotion.sequence:
            return reported
        final = f"{folder}/{version_name(promotion)}"
        if not self._files.exists(final):
            self._build(folder, final, promotion, version)
        # A pointer is no result of this job: its outputs are about what the new name holds.
        is_pointer = (tombstone_of(promotion) or {}).get("state") == RENAMED
        if self._output_path and not is_pointer:
            self._append(self._output_path, outputs(output_values(promotion, final), self._ids))
        if self._summary_path and not is_pointer:
            self._append(self._summary_path, summary(promotion, version).encode())
        self._files.create(f"{folder}/{_REPORTED}{version_name(promotion)}").close()
        return promotion.sequence

    def purge(
        self,
        dataset_id: str,
        gone: Sequence[Promotion],
        blobs: Collection[str],
        check: Callable[[], None] = lambda: None,
    ) -> int:
        """Remove these versions from this machine. What a job has uploaded is GitHub's, and out of reach."""
        del blobs
        folder = f"{self._folder}/{require_folder_name(dataset_id)}"
        there = [name for name in map(version_name, gone) if self._files.exists(f"{folder}/{name}")]
        try:
            for name in there:
                check()
                trash = f"{folder}/.building-{self._ids.new()}"
                self._files.rename(f"{folder}/{name}", trash)  # a version is whole or gone
                remove_tree(self._files, trash)
        except OSError as error:
            raise TargetUnavailable(
                f"{self.name}: {error.strerror or error} ({error.filename or folder})."
            ) from error
        return len(there)

    def _build(self, folder: str, final: str, promotion: Promotion, version: Version) -> None:
        building = f"{folder}/.building-{self._ids.new()}"
        try:
            builder = VersionBuilder(self._files, self._objects, building)
            builder.build(FolderPlan(version, tombstone_of(promotion)))
            self._files.rename(building, final)
            self._files.fsync_dir(folder)
        finally:
            if self._files.exists(building):
                remove_tree(self._files, building)

    def _reported(self, folder: str) -> int | None:
        names = [
            name.removeprefix(_REPORTED) for name in self._files.listdir(folder) if name.startswith(_REPORTED)
        ]
        return max((sequence_of(name) for name in names), default=None)


def output_values(promotion: Promotion, final: str) -> dict[str, str]:
    """The job's outputs; with the dataset in the name too, for jobs that publish several."""
    values = {"path": final, "sequence": str(promotion.sequence), "version_id": promotion.version_id}
    prefix = re.sub(r"[^A-Za-z0-9_-]", "_", promotion.dataset_id)
    return {**values, **{f"{prefix}_{name}": value for name, value in values.items()}}


def outputs(values: Mapping[str, str], ids: Ids) -> bytes:
    """The lines for $GITHUB_OUTPUT. A delimiter that can't be guessed keeps a value from ending early."""
    lines = []
    for name, value in values.items():
        delimiter = _delimiter(value, ids)
        lines.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    return "".join(lines).encode()


def _delimiter(value: str, ids: Ids) -> str:
    for _ in range(DELIMITER_TRIES_MAX):
        delimiter = f"kfm_{ids.new()}"
        if delimiter not in value:
            return delimiter
    raise TargetUnavailable("No delimiter was found that the value does not contain.")


def summary(promotion: Promotion, version: Version) -> str:
    """A few lines of Markdown. The summary of a public repository is public: restricted ids stay hidden."""
    header, facts = version.header, version.facts()
    hidden = header.rights.care.level in ("restricted", "blocked")
    lines = [
        f"### {escaped(MASKED if hidden else header.title)}: version {promotion.sequence}",
        "",
        f"{facts.files} files, {readable_size(facts.bytes)} · licence {escaped(header.rights.license)} · "
        f"{escaped(header.rights.care.label)} · `{promotion.version_id}`",
        "",
    ]
    if not hidden and facts.files:
        files = islice(version.files(), ROWS_MAX)
        lines += ["| file | size |", "| --- | ---: |"]
        lines += [f"| {escaped(path)} | {readable_size(size)} |" for path, _, size in files]
        if facts.files > ROWS_MAX:
            lines.append(f"| … and {facts.files - ROWS_MAX} more | |")
        lines.append("")
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown and HTML show as it is, on one line."""
    one_line = " ".join(text.split())
    entities = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;"}
    return _SPECIAL.sub(lambda match: entities.get(match[1], "\\" + match[1]), one_line)
