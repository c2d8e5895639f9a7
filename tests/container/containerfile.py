"""deploy/Containerfile, carried out step by step without a builder of images.

Its base comes from a registry. Here Debian's own tools make one of the same release with the same Python, and
every other step is taken from the file as it stands. Steps have no network: wheels are fetched before, by the
hashes of requirements/, and pip is told where they are.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

BASE = re.compile(r"python:(?P<python>3\.\d+)-slim-(?P<release>[a-z]+)")
MADE_SECONDS_MAX = 600
WHEELS = "mnt"  # in the file system that is being made, while a step runs
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # of every image
DEBIAN = ("python3", "python3-venv", "python3-pip", "python-is-python3", "ca-certificates")


class NotUnderstood(Exception):
    """The Containerfile has something that this does not know."""


@dataclass
class Image:
    """A file system, and how it is started."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    signal: str = "SIGTERM"


def instructions(text: str) -> list[tuple[str, str]]:
    """What it says, line by line: continued lines are one, comments are none."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    found = []
    for line in filter(str.strip, whole.splitlines()):
        name, _, rest = line.strip().partition(" ")
        found.append((name, " ".join(rest.split()) if name != "RUN" else rest.strip()))
    return found


def started_with(text: str, root: Path) -> Image:
    """What its last stage says about a start: environment, user, folder, command. Nothing is made."""
    image = Image(root)
    for name, rest in instructions(text):
        if name == "FROM":
            image = Image(root)
        else:
            _declare(image, name, rest)
    return image


def make(containerfile: Path, context: Path, scratch: Path) -> Image:
    """The image, in a folder of `scratch`; as root."""
    text, stages = containerfile.read_text(), dict[str, Image]()
    wheels, base = _wheels(context, scratch / "wheels"), scratch / "base"
    image = Image(base)
    for name, rest in instructions(text):
        if name == "FROM":
            reference, _, alias = rest.partition(" AS ")
            _base(reference, base)
            image = Image(scratch / (alias or "image"))
            stages[alias] = image
            subprocess.run(["cp", "--archive", "--reflink=auto", base, image.root], check=True)
        elif name == "COPY":
            _copy(image, rest, context, stages)
        else:
            carry_out(image, name, rest, wheels)
    return image


def carry_out(image: Image, name: str, rest: str, wheels: Path) -> None:
    """A step that needs no other stage."""
    if name == "RUN":
        _run(image, rest, wheels)
    else:
        _declare(image, name, rest)


def _declare(image: Image, name: str, rest: str) -> None:
    match name:
        case "ENV":
            for word in shlex.split(rest):
                key, _, value = word.partition("=")
                image.env[key] = value.replace("$PATH", image.env.get("PATH", PATH))
        case "WORKDIR":
            image.folder = rest
            if image.root.is_dir():
                _inside(image, rest).mkdir(parents=True, exist_ok=True)
        case "USER":
            image.user = rest
        case "ENTRYPOINT":
            image.entrypoint = json.loads(rest)
        case "CMD":
            image.command = json.loads(rest)
        case "EXPOSE":
            image.ports.append(int(rest))
        case "STOPSIGNAL":
            image.signal = rest
        case "LABEL" | "VOLUME" | "HEALTHCHECK" | "COPY" | "RUN":
            pass
        case _:
            raise NotUnderstood(f"{name} {rest}")


def _base(reference: str, base: Path) -> None:
    found = BASE.fullmatch(reference)
    if found is None:
        raise NotUnderstood(f"FROM {reference}: no base that Debian's tools could make")
    if not base.exists():
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(DEBIAN)}"]
        subprocess.run([*command, found["release"], base], check=True, timeout=MADE_SECONDS_MAX)
        for mark in base.glob("usr/lib/python3.*/EXTERNALLY-MANAGED"):  # the image's Python is pip's own
            mark.unlink()
    if not (base / "usr/bin" / f"python{found['python']}").exists():
        raise NotUnderstood(f"Debian {found['release']} has no Python {found['python']}")


def _wheels(context: Path, folder: Path) -> Path:
    """What the steps install, by its hashes."""
    if not folder.exists():
        named = [part for name in ("build", "service") for part in ("-r", f"requirements/{name}.txt")]
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        download += ["--only-binary", ":all:", "--dest", str(folder.with_suffix(".part")), *named]
        subprocess.run(download, check=True, cwd=context, timeout=MADE_SECONDS_MAX)
        folder.with_suffix(".part").rename(folder)
    return folder


def _run(image: Image, script: str, wheels: Path) -> None:
    """One RUN, as root in the file system that is being made, without a network."""
    mounts = 'mount --bind "$1" "$2/mnt" && mount -t proc proc "$2/proc" && exec chroot "$2" /bin/sh -ec "$3"'
    whole = f"cd {shlex.quote(image.folder)}\n{script}"
    command = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-ec", mounts, "sh"]
    found = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"/{WHEELS}", "PIP_ROOT_USER_ACTION": "ignore"}
    env = {"PATH": PATH, "HOME": "/root"}
    subprocess.run(
        [*command, wheels, image.root, whole],
        check=True,
        env={**env, **image.env, **found},
        timeout=MADE_SECONDS_MAX,
        stdout=subprocess.DEVNULL,
    )


def _copy(image: Image, rest: str, context: Path, stages: dict[str, Image]) -> None:
    *sources, target = rest.split()
    root = context
    if sources[0].startswith("--from="):
        root = stages[sources.pop(0).removeprefix("--from=")].root
    place = _inside(image, target)
    for source in sources:
        path = root / source.lstrip("/")
        if path.is_dir():
            shutil.copytree(path, place, symlinks=True, dirs_exist_ok=True)
        elif target.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place / path.name)
        else:
            shutil.copy2(path, place)


def _inside(image: Image, path: str) -> Path:
    return image.root / os.path.join(image.folder, path).lstrip("/")
