"""The mover of modules: names keep their meaning when files move and merge."""
# ruff: noqa: E501 - little modules, a line each

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def moved(root: Path, files: dict[str, str], table: str) -> str:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "table").write_text(table)
    done = subprocess.run(
        [sys.executable, ROOT / "tools/move.py", root / "table", "--root", root],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def value(root: Path, expression: str, module: str) -> str:
    code = f"import {module} as m; print({expression})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{root}/src"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_module_that_moves_takes_its_mentions_along(tmp_path: Path) -> None:
    """Imports, uses through the module, dotted texts and paths follow; what only looks alike does not."""
    moved(
        tmp_path,
        {
            "src/kfm/__init__.py": "",
            "src/kfm/a/__init__.py": "",
            "src/kfm/a/walid.py": "def f(x):\n    return x\n\n\ndef g():\n    return 1\n",
            "src/kfm/b.py": (
                "from kfm.a import walid\n\nTEXT = 'kfm.a.walid.f'\nOTHER = 'kfm.a.count'\n\n\n"
                "def use(walid_=2):\n    return f'{walid.f(walid_)}{walid.g()}'\n"
            ),
            "README.md": "See `src/kfm/a/walid.py` and kfm.a.walid.\n",
        },
        "kfm.a.walid kfm.model.units f=same\n",
    )
    assert value(tmp_path, "m.use(), m.TEXT, m.OTHER", "kfm.b") == "21 kfm.model.units.same kfm.a.count"
    assert (tmp_path / "README.md").read_text() == "See `src/kfm/model/units.py` and kfm.model.units.\n"
    assert not (tmp_path / "src/kfm/a").exists()
    assert "from kfm.model import units" in (tmp_path / "src/kfm/b.py").read_text()


def test_a_new_name_that_means_something_else_there_is_not_taken(tmp_path: Path) -> None:
    """If the new basename is a parameter where the module is used, the old name stays as an alias."""
    report = moved(
        tmp_path,
        {
            "src/kfm/__init__.py": "",
            "src/kfm/walid.py": "ONE = 1\n",
            "src/kfm/b.py": "from kfm import walid\n\n\ndef use(units):\n    return units + walid.ONE\n",
        },
        "kfm.walid kfm.model.units\n",
    )
    assert value(tmp_path, "m.use(4)", "kfm.b") == "5"
    assert "units as walid" in (tmp_path / "src/kfm/b.py").read_text()
    assert "aliases used" in report


def test_merged_modules_keep_their_meaning(tmp_path: Path) -> None:
    """Clashes are renamed, siblings' imports vanish, what is needed first comes first, parameters hide nothing."""
    report = moved(
        tmp_path,
        {
            "src/kfm/__init__.py": "",
            "src/kfm/p.py": (
                '"""First."""\n\nfrom __future__ import annotations\n\nfrom kfm import q\nfrom kfm.q import Base\n\n\n'
                "class Mine(Base):\n    pass\n\n\ndef _row():\n    return 1\n\n\n"
                "def hidden(claim):\n    return q.claim(claim)\n\n\ndef local():\n    claim = 3\n"
                "    return q.claim(claim)\n\n\ndef both():\n    from kfm.q import row_of\n\n    return _row(), row_of()\n"
            ),
            "src/kfm/q.py": (
                '"""Second."""\n\nfrom __future__ import annotations\n\nfrom typing import TYPE_CHECKING\n\n'
                "if TYPE_CHECKING:\n    from kfm.p import Mine\n\n\n# Kept with the class.\nclass Base:\n    pass\n\n\n"
                "def claim(x: int, _: Mine | None = None):\n    return x + 1\n\n\ndef _row():\n    return 2\n\n\n"
                "def row_of():\n    return _row()\n"
            ),
            "src/kfm/user.py": "from kfm.q import _row\n\nVALUE = _row()\n",
        },
        "kfm.p kfm.db.units\nkfm.q kfm.db.units\n",
    )
    assert value(
        tmp_path, "m.hidden(1), m.local(), m.both(), issubclass(m.Mine, m.Base)", "kfm.db.units"
    ) == ("2 4 (1, 2) True")
    assert value(tmp_path, "m.VALUE", "kfm.user") == "2"
    assert "kfm.q._row -> kfm.db.units._q_row" in report
    text = (tmp_path / "src/kfm/db/units.py").read_text()
    assert "TYPE_CHECKING" not in text
    assert "# Kept with the class.\nclass Base" in text


def test_a_rule_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    """A table with a misspelt module changes nothing."""
    report = moved(
        tmp_path, {"src/kfm/__init__.py": "", "src/kfm/a.py": "X = 1\n"}, "kfm.a kfm.b\nkfm.c kfm.d\n"
    )
    assert "line 2: no such module: kfm.c" in report
    assert (tmp_path / "src/kfm/a.py").exists()
