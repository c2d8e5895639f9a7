"""An image that is there at once: this machine's own file system under an overlay, with the tested code.

The steps of the last stage of deploy/Containerfile are carried out on it; what the first stage would have
made comes from the environment of the tests. Nothing is written to the machine itself.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.container.containerfile import Image, carry_out, instructions
from tests.container.network import Network
from tests.container.pods import RUNTIME
from tests.services import ServiceUnavailable

PYTHON = "/opt/python"
KFM = "/opt/kfm"  # where the Containerfile has it


def require() -> str:
    """The path of runc, if file systems and networks of pods can be made here."""
    path = shutil.which(RUNTIME)
    for name, package in ((RUNTIME, "runc"), ("ip", "iproute2")):
        if shutil.which(name) is None:
            raise ServiceUnavailable(f"{name} is not installed (Debian package `{package}`)")
    if os.geteuid() != 0:
        raise ServiceUnavailable("only root may make network namespaces and mount file systems")
    try:
        with tempfile.TemporaryDirectory() as name, _overlay(Path(name)):
            Network().close()
    except subprocess.CalledProcessError as error:
        raise ServiceUnavailable(f"{error.cmd[0]}: {error.stderr}"[:300]) from None
    assert path is not None
    return path


@contextlib.contextmanager
def machine_image(containerfile: Path, source: Path, scratch: Path) -> Iterator[Image]:
    """`source`: the folder with kfm's packages."""
    with _overlay(scratch) as root:
        image = Image(root)
        for name, rest in _last_stage(containerfile.read_text()):
            if name == "COPY":
                _bring(root, source)
            else:
                carry_out(image, name, rest, scratch)
        yield image


def _last_stage(text: str) -> list[tuple[str, str]]:
    whole = instructions(text)
    begins = max(number for number, (name, _) in enumerate(whole) if name == "FROM")
    return whole[begins + 1 :]


def _bring(root: Path, source: Path) -> None:
    """Python, what it has installed, and kfm: where any user may read them, wherever they are here."""
    packages = sysconfig.get_path("purelib")
    for place, target in (
        (sys.base_prefix, PYTHON),
        (packages, f"{KFM}/packages"),
        (str(source), f"{KFM}/source"),
    ):
        there = root / target.lstrip("/")
        there.mkdir(parents=True)
        _mount("--bind", place, str(there))
        _mount("-o", "remount,bind,ro", str(there))
    command = root / f"{KFM}/bin/kfm".lstrip("/")
    command.parent.mkdir()
    python = f"{PYTHON}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    env = f"PYTHONPATH={KFM}/source:{KFM}/packages LD_LIBRARY_PATH={PYTHON}/lib"
    command.write_text(f'#!/bin/sh\n{env} exec {python} -m kfm "$@"\n')
    command.chmod(0o755)


@contextlib.contextmanager
def _overlay(scratch: Path) -> Iterator[Path]:
    written, work, root = scratch / "written", scratch / "work", scratch / "image"
    for each in (written, work, root):
        each.mkdir(parents=True)
    _mount("-t", "overlay", "kfm", "-o", f"lowerdir=/,upperdir={written},workdir={work}", str(root))
    try:
        yield root
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", root], check=True, timeout=60)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True, text=True, timeout=60)
