"""MiniStack, a second emulator of AWS: what two of them agree about is likely to be true."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests import services


@contextlib.contextmanager
def serving(address: str = "127.0.0.1") -> Iterator[str]:
    """The emulator in a process of its own, on this address alone; yields its URL."""
    if importlib.util.find_spec("ministack") is None:
        raise services.ServiceUnavailable("ministack is not installed (make test installs it)")
    with tempfile.TemporaryDirectory(prefix="kfm-ministack-", dir="/tmp", ignore_cleanup_errors=True) as name:
        log = Path(name) / "log"
        for _ in range(services.PORT_TRIES_MAX):
            port = services.free_port()
            with log.open("ab") as out:
                server = subprocess.Popen(
                    [sys.executable, "-m", "ministack"],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    cwd=name,
                    env=_environment(name, address, port),
                    start_new_session=True,
                    preexec_fn=services.die_with_parent,
                )
            try:
                if _answers(server, f"http://{address}:{port}"):
                    yield f"http://{address}:{port}"
                    return
            finally:
                services.stop(server, signal.SIGTERM)
        raise services.ServiceUnavailable(f"ministack did not start: {log.read_text()[-500:]}")


def _environment(folder: str, address: str, port: int) -> dict[str, str]:
    """Nothing of ours is inherited that it could act upon, and it serves what is tested, nothing else."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
    return {
        **kept,
        "HOME": folder,
        "TMPDIR": folder,
        "BIND_HOST": address,  # its own choice is every interface
        "GATEWAY_PORT": str(port),
        "MINISTACK_HOST": address,
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "DOCKER_HOST": f"unix://{folder}/none",  # it would look for containers of its own
        "LOG_LEVEL": "WARNING",
    }


def _answers(server: subprocess.Popen[bytes], address: str) -> bool:
    """True once it does; False if it ended (most likely the port was taken meanwhile)."""
    deadline = time.monotonic() + services.START_SECONDS_MAX
    while time.monotonic() < deadline:
        if server.poll() is not None:
            return False
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{address}/_ministack/health", timeout=5).close()
            return True
        time.sleep(0.05)
    return False
