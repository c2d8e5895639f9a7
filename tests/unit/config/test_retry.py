"""What a configuration may say about retry budgets of runs and breakers of providers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfm.config.loader import Loaded, load
from kfm.config.origins import leaves, public_document
from kfm.model.errors import ConfigError
from kfm.model.retry import policy_for
from kfm.runs.transform import output_version

pytestmark = pytest.mark.req("TRG-1", "RET-7", "CLI-2")

RIGHT = """\
version: 1
datasets: [{id: rivers}]
retry:
  attempts: 4
  grants_per_day: 3
  webhook: {ladder_seconds: [10, 20]}
sources:
  - id: gauges
    dataset: rivers
    kind: files
    folder: in
    retry:
      budget_seconds: 7200
      upstream-event:
        base_seconds: 2.5
        cap_seconds: 60
  - {id: plain, dataset: rivers, kind: files, folder: in}
providers:
  data.example.org: {failures: 5}
  s3://noaa: {cool_down_seconds: 30}
"""


def loaded(folder: Path, text: str = RIGHT) -> Loaded:
    (folder / "kfm.yml").write_text(text)
    return load(str(folder / "kfm.yml"), {}, {})


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("attempts: 4", "attempts: 0", 4, "`attempts` must be from 1 to 100"),
        ("attempts: 4", "attempts: 1.5", 4, "`attempts` must be a whole number"),
        ("attempts: 4", "atempts: 4", 4, "did you mean `attempts`?"),
        ("grants_per_day: 3", "grants_per_day: 0", 5, "`grants_per_day` must be from 1 to 1000"),
        ("grants_per_day: 3", "grants: 1001", 5, "`grants` must be from 1 to 1000"),
        ("  webhook:", "  webhooks:", 6, "did you mean `webhook`?"),
        ("[10, 20]", "[10, 0]", 6, "a step of `ladder_seconds` must be from 0.1 to 604800"),
        ("[10, 20]", f"[{', '.join(['1'] * 21)}]", 6, "`ladder_seconds` has at most 20 steps"),
        ("[10, 20]", "[10], base_seconds: 5", 6, "takes the place of `base_seconds`"),
        ("budget_seconds: 7200", "budget_seconds: 0", 13, "`budget_seconds` must be from 1 to 7776000"),
        ("      upstream-event:", "      upstream-events:", 14, "did you mean `upstream-event`?"),
        ("base_seconds: 2.5", "base_seconds: 0", 15, "`base_seconds` must be from 0.1 to 604800"),
        ("base_seconds: 2.5", "base_seconds: 61", 16, "`cap_seconds` must not be less than `base_seconds`"),
        ("base_seconds: 2.5", "grants: 2", 15, "`grants` is not a setting of `upstream-event`"),
        ("failures: 5", "failures: 0", 19, "`failures` must be from 1 to 1000"),
        ("failures: 5", "failure: 5", 19, "did you mean `failures`?"),
        ("s3://noaa", '"two words"', 20, "the provider `two words` can't be called"),
        ("cool_down_seconds: 30", "cool_down_seconds: 0.5", 20, "must be from 1 to 86400"),
    ],
)
def test_a_wrong_one_is_told(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    """With the line, and the word that was meant."""
    assert RIGHT.count(old) == 1, old
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, RIGHT.replace(old, new))
    assert f"kfm.yml:{line}: " in str(refused.value)
    assert said in str(refused.value)


def test_the_nearest_setting_wins(tmp_path: Path) -> None:
    """A source's over the project's, a trigger's over the common one, the matrix where nothing is said."""
    settings = loaded(tmp_path).settings
    webhook = policy_for("webhook", settings.retry_of("gauges"))
    assert (webhook.attempts_max, webhook.budget_ms) == (4, 7_200_000)
    assert webhook.ladder_ms == (10_000, 20_000)
    assert (webhook.grants_max, webhook.grants_per_day_max) == (5, 3)
    event = policy_for("upstream-event", settings.retry_of("gauges"))
    assert (event.base_ms, event.cap_ms, event.dead_letter) == (2_500, 60_000, True)
    plain = policy_for("cron", settings.retry_of("plain"))
    assert (plain.attempts_max, plain.budget_ms, plain.base_ms) == (4, 21_600_000, 30_000)
    assert policy_for("cron", settings.retry_of("gone")) == plain


def test_every_value_has_its_origin(tmp_path: Path) -> None:
    """`kfm config show --origin` names the line of a value, under the name that it has in the file."""
    read = loaded(tmp_path)
    values, origins = dict(leaves(read.settings)), read.origins
    name = read.name
    for field, value, line in (
        ("retry.attempts", 4, 4),
        ("retry.webhook.ladder_seconds", [10, 20], 6),
        ("sources[0].retry.upstream-event.base_seconds", 2.5, 15),
        ("providers.data.example.org.failures", 5, 19),
        ("providers.s3://noaa.cool_down_seconds", 30, 20),
    ):
        assert (values[field], origins[field]) == (value, f"{name}:{line}")
    assert origins["retry.grants"] == origins["providers.data.example.org.cool_down_seconds"] == "default"
    shown = public_document(read.settings)
    assert shown["sources"][0]["retry"]["upstream-event"]["cap_seconds"] == 60
    assert load(read.name, {}, {}).settings == read.settings, "also out of the cache"


def test_how_often_it_is_tried_is_not_the_work(tmp_path: Path) -> None:
    """Another budget makes no other work: the key of a run stays."""
    settings = loaded(tmp_path).settings
    mine, plain = settings.sources
    assert output_version(mine, [], lambda _: b"") == output_version(plain, [], lambda _: b"")
