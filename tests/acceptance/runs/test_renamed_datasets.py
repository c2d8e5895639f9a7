"""A dataset that was renamed is the same dataset: its versions, withdrawals, dismissals and runs stay its
own, and readers of an earlier name find a pointer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.runs.conftest import CONFIG, Inside
from tests.crash.project import RIGHTS, Ended, table

pytestmark = pytest.mark.req("DAT-5")

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
PATTERN = '"{window.start:%Y-%m-%d}.csv"'
WHY = ("--rationale", "The name of the catalogue.")
OLD = "{{id: levels, title: Levels, domain: hydrology, rights: {rights}}}"
Valid = Callable[[str, Any], None]


def configure(
    project: Inside,
    dataset: str = "id: levels",
    *,
    reads: str = "levels",
    rights: str = RIGHTS,
    more: str = "",
    others: str = "",
) -> None:
    """One dataset, written as `dataset` says, filled by one source."""
    source = f"{{id: notes, dataset: {reads}, kind: files, folder: incoming, pattern: {PATTERN}}}"
    text = CONFIG.format(source=source + others, rights=rights, more=more)
    written = f"{{{dataset}, title: Levels, domain: hydrology, rights: {rights}}}"
    project.write("kfm.yml", text.replace(OLD.format(rights=rights), written))


def day(project: Inside, text: str, *more: str) -> Ended:
    return project.kfm("run", "--json", "--source", "notes", "--window", f"{text}/P1D", *more)


def named(project: Inside, **options: Any) -> None:
    configure(project, "id: gauges, formerly: [levels]", **{"reads": "gauges", **options})


def rename(project: Inside, *more: str) -> Ended:
    return project.kfm("dataset", "rename", "levels", "gauges", "--json", *more)


@pytest.fixture
def filled(project: Inside) -> Inside:
    """Three days in three versions."""
    configure(project)
    for text in DAYS:
        project.write(f"incoming/{text}.csv", table(text, 3))
        assert day(project, text).code == 0
    return project


@pytest.fixture
def renamed(filled: Inside) -> Inside:
    named(filled)
    ended = rename(filled, "--yes", *WHY)
    assert ended.code == 0, ended
    return filled


def shown(project: Inside, name: str) -> list[str]:
    data = project.published / name / "current/data"
    return sorted(path.stem for path in data.rglob("*.csv"))


def document(project: Inside, name: str, file: str) -> Any:
    return json.loads((project.published / name / "current" / file).read_bytes())


def sound(project: Inside) -> None:
    ended = project.kfm("audit", "verify", "--json")
    assert ended.code == 0, ended


def test_the_configuration_alone_changes_nothing_for_readers(filled: Inside) -> None:
    """Between the edit and the command runs go on under the name that readers know, and `config check` names
    the command."""
    named(filled)
    filled.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    assert day(filled, DAYS[0]).result["word"] == "published"
    assert document(filled, "levels", "manifest.json")["dataset_id"] == "levels"
    assert not (filled.published / "gauges").exists()
    assert len(filled.rows("SELECT * FROM promotions WHERE dataset_id = 'levels'")) == 4
    notes = filled.kfm("config", "check", "--json").document["notes"]
    (sentence,) = (one["sentence"] for one in notes if "kfm dataset rename" in one["sentence"])
    command = sentence.split("`")[1]
    assert filled.kfm(*command.replace("TEXT", "agreed").split()[1:]).code == 0
    assert document(filled, "gauges", "manifest.json")["dataset_id"] == "gauges", "the command renames it"


def test_it_is_previewed_applied_and_shown_under_both_names(filled: Inside, valid: Valid) -> None:
    """A version under the new name with every file, and at the earlier one nothing but a pointer to it."""
    named(filled)
    preview = rename(filled)
    valid("cli-dataset-rename", preview.document)
    plan = preview.document["plan"]
    assert (preview.code, plan["sequence"], plan["rename"]) == (0, 4, {"old": "levels", "new": "gauges"})
    assert not (filled.published / "gauges").exists()
    done = rename(filled, "--digest", plan["digest"], *WHY)
    valid("cli-dataset-rename", done.document)
    assert done.code == 0, done
    assert shown(filled, "gauges") == list(DAYS)
    assert document(filled, "gauges", "manifest.json")["dataset_id"] == "gauges"
    assert document(filled, "gauges", "collection.json")["id"] == "gauges"
    assert shown(filled, "levels") == []
    pointer = document(filled, "levels", "withdrawn.json")
    assert (pointer["state"], pointer["renamed_to"], pointer["sequence"]) == ("renamed", "gauges", 4)
    assert pointer["reason"] == WHY[1]
    assert document(filled, "levels", "manifest.json")["items"]["count"] == 0
    sound(filled)
    assert filled.kfm("project", "--json").code == 0
    assert shown(filled, "levels") == []


def test_its_history_goes_on_under_the_new_name(renamed: Inside, valid: Valid) -> None:
    """The same windows are unchanged, new bytes are the next version, and an earlier version can be put
    back."""
    assert day(renamed, DAYS[0]).result["word"] == "unchanged"
    renamed.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    assert day(renamed, DAYS[0]).result["word"] == "published"
    assert [row[0] for row in renamed.rows("SELECT DISTINCT dataset_id FROM promotions")] == ["levels"]
    versions = renamed.kfm("dataset", "show", "gauges", "--json")
    valid("cli-dataset-show", versions.document)
    assert [one["by"] for one in versions.document["dataset"]["versions"]] == [
        "run",
        "rename",
        "run",
        "run",
        "run",
    ]
    back = renamed.kfm("rollback", "gauges", "--to", "2", "--yes", "--json", *WHY)
    assert back.code == 0, back
    assert shown(renamed, "gauges") == list(DAYS[:2])
    assert document(renamed, "gauges", "manifest.json")["dataset_id"] == "gauges"
    assert shown(renamed, "levels") == []
    sound(renamed)


@pytest.mark.parametrize("name", ["levels", "gauges"])
def test_every_name_finds_it(renamed: Inside, name: str, valid: Valid) -> None:
    """Show, cover, explain, list, switch and withdraw by either name; an earlier one is answered with the
    new."""
    found = renamed.kfm("dataset", "show", name, "--json")
    valid("cli-dataset-show", found.document)
    dataset = found.document["dataset"]
    assert (dataset["dataset_id"], dataset["name"], dataset["formerly"]) == ("levels", "gauges", ["levels"])
    assert dataset.get("renamed_to") == ("gauges" if name == "levels" else None)
    assert renamed.kfm("coverage", name, "--json").code == 0
    assert renamed.kfm("explain", name, "--json").code == 0
    assert len(renamed.kfm("runs", "--dataset", name, "--json").document["runs"]) == 3
    assert renamed.kfm("switch", "set", "paused", "--dataset", name, *WHY).code == 0
    assert day(renamed, DAYS[0], "--force", *WHY, "--ticket", "T-1").code == 3
    gone = renamed.kfm("withdraw", name, "--window", f"{DAYS[1]}/P1D", "--yes", "--json", *WHY)
    assert gone.code == 0, gone
    assert shown(renamed, "gauges") == [DAYS[0], DAYS[2]]
    assert document(renamed, "gauges", "withdrawn.json")["dataset_id"] == "gauges"


def test_what_was_withdrawn_and_dismissed_before_stays_so(filled: Inside) -> None:
    """A withdrawal keeps its window away under the new name, too, and a purge removes what the earlier
    address kept."""
    assert filled.kfm("withdraw", "levels", "--window", f"{DAYS[1]}/P1D", "--yes", *WHY).code == 0
    named(filled)
    assert rename(filled, "--yes", *WHY).code == 0
    assert day(filled, DAYS[1]).result["error"]["code"] == "KFM350"
    assert shown(filled, "gauges") == [DAYS[0], DAYS[2]]
    purged = filled.kfm("withdraw", "gauges", "--purge", "--yes", "--json", *WHY)
    assert purged.code == 0, purged
    assert {one["state"] for one in purged.document["receipt"]["purges"]} == {"done"}
    assert not list(filled.published.rglob("*.csv")), "no version of either address keeps a file"
    assert document(filled, "gauges", "withdrawn.json")["state"] == "withdrawn"
    assert document(filled, "levels", "withdrawn.json")["renamed_to"] == "gauges"
    sound(filled)


def test_it_can_be_renamed_again_and_back(renamed: Inside) -> None:
    """Every earlier address points to the present one; a name that it had once may be its name again."""
    configure(renamed, "id: rivers, formerly: [levels, gauges]", reads="rivers")
    assert renamed.kfm("dataset", "rename", "gauges", "rivers", "--yes", *WHY).code == 0
    for name in ("levels", "gauges"):
        assert document(renamed, name, "withdrawn.json")["renamed_to"] == "rivers"
        assert shown(renamed, name) == []
    assert shown(renamed, "rivers") == list(DAYS)
    configure(renamed, "id: levels2, formerly: [levels, gauges, rivers]", reads="levels2")
    assert renamed.kfm("dataset", "rename", "rivers", "levels2", "--yes", *WHY).code == 0
    assert shown(renamed, "levels2") == list(DAYS)
    configure(renamed, "id: levels, formerly: [levels, gauges, rivers, levels2]", reads="levels")
    assert renamed.kfm("dataset", "rename", "levels2", "levels", "--yes", *WHY).code == 0
    assert shown(renamed, "levels") == list(DAYS)
    assert not (renamed.published / "levels/current/withdrawn.json").exists()
    for name in ("gauges", "rivers", "levels2"):
        assert document(renamed, name, "withdrawn.json")["renamed_to"] == "levels"
    renamed.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    assert day(renamed, DAYS[0]).result["word"] == "published"
    sound(renamed)


def test_an_earlier_name_that_no_one_knows_is_told(filled: Inside) -> None:
    """A slip in `formerly` would begin another dataset: `config check` says that nothing was published so."""
    configure(filled, "id: gauges, formerly: [leveles]", reads="gauges")
    notes = filled.kfm("config", "check", "--json").document["notes"]
    assert any("nothing was ever published as leveles" in one["sentence"] for one in notes), notes


def test_a_new_dataset_does_not_take_a_name_that_readers_know(renamed: Inside) -> None:
    """Without `formerly` the new id is no other dataset: its runs are refused, and the way out is named."""
    configure(renamed, "id: gauges", reads="gauges")
    ended = day(renamed, DAYS[0])
    assert ended.code == 3, ended
    assert "formerly: [levels]" in ended.out + ended.err
    assert [row[0] for row in renamed.rows("SELECT DISTINCT dataset_id FROM promotions")] == ["levels"]
    assert shown(renamed, "gauges") == list(DAYS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("levels", "nowhere"), "formerly: [levels]"),
        (("levels", "levels"), "two different ids"),
        (("nothing", "gauges"), "formerly: [nothing]"),
        (("", ""), "Give it a value"),
        (("levels", "../../etc"), "formerly: [levels]"),
    ],
)
def test_nonsense_is_refused_with_a_way_out(filled: Inside, words: tuple[str, str], said: str) -> None:
    """What the configuration does not say is not done."""
    named(filled)
    ended = filled.kfm("dataset", "rename", *words, "--json", "--yes", *WHY)
    assert (ended.code, ended.document["code"]) == (2, "KFM200"), ended
    assert said in ended.document["remedy"]
    assert not filled.rows("SELECT * FROM dataset_changes")


def test_what_is_done_is_not_done_twice(renamed: Inside) -> None:
    """Readers find it by that name already; without a reason nothing is done."""
    again = rename(renamed, "--yes", *WHY)
    assert again.code == 2
    assert "already" in again.document["message"]
    configure(renamed, "id: rivers, formerly: [levels, gauges]", reads="rivers")
    wrong = renamed.kfm("dataset", "rename", "levels", "rivers", "--yes", "--json", *WHY)
    assert wrong.code == 2
    assert "rename gauges rivers" in wrong.document["remedy"]
    silent = renamed.kfm("dataset", "rename", "gauges", "rivers", "--yes", "--json")
    assert (silent.code, silent.document["code"]) == (3, "KFM304")


@pytest.mark.parametrize(
    ("datasets", "said"),
    [
        ("{id: a, formerly: [x]}, {id: b, formerly: [x]}", "that name is used twice"),
        ("{id: a, formerly: [b]}, {id: b}", "that name is used twice"),
        ("{id: a, formerly: [a]}", "leave it out of `formerly`"),
        ("{id: a, formerly: [x, x]}", "that name is used twice"),
        ("{id: a, formerly: ['no good']}", "the former id"),
    ],
)
def test_two_datasets_do_not_claim_one_name(project: Inside, datasets: str, said: str) -> None:
    """A name stands for one dataset, now and before."""
    project.write("kfm.yml", f"version: 1\ndatasets: [{datasets}]\n")
    ended = project.kfm("config", "check", "--json")
    assert (ended.code, said in ended.document["message"]) == (2, True), ended


# --- removal, targets, rules ---------------------------------------------------------------


PUBLISHED = "path: published}\n"


def edit(project: Inside, old: str, new: str) -> None:
    text = (project.folder / "kfm.yml").read_text()
    assert old in text
    project.write("kfm.yml", text.replace(old, new))


def test_what_stops_publishing_does_not_stop_removing_under_another_name(filled: Inside) -> None:
    """A renaming that gates keep from being shown leaves the earlier address as it is; what is then withdrawn
    goes from there all the same, and comes to no new address."""
    named(filled)
    plan = rename(filled).document["plan"]["digest"]
    assert filled.kfm("switch", "set", "stopped", "--dataset", "levels", *WHY).code == 0
    ended = rename(filled, "--digest", plan, *WHY)
    assert ended.code == 4, ended
    assert shown(filled, "levels") == list(DAYS), "it was renamed, and nothing else"
    assert not (filled.published / "gauges/current").exists()
    gone = filled.kfm("withdraw", "gauges", "--window", f"{DAYS[1]}/P1D", "--yes", "--json", *WHY)
    assert gone.code == 4, gone
    assert shown(filled, "levels") == []
    assert document(filled, "levels", "withdrawn.json")["renamed_to"] == "gauges"
    assert not (filled.published / "gauges/current").exists()
    assert filled.kfm("switch", "set", "running", "--dataset", "gauges", *WHY).code == 0
    assert filled.kfm("project", "--json").code == 0
    assert shown(filled, "gauges") == [DAYS[0], DAYS[2]]
    sound(filled)


def test_a_retired_dataset_ends_at_its_new_name(renamed: Inside) -> None:
    """The earlier address goes on pointing to where the tombstone is."""
    assert renamed.kfm("dataset", "retire", "levels", "--yes", *WHY).code == 0
    assert document(renamed, "gauges", "withdrawn.json")["state"] == "retired"
    assert document(renamed, "levels", "withdrawn.json")["renamed_to"] == "gauges"


@pytest.mark.req("DAT-6")
def test_a_target_that_takes_the_new_name_no_more(filled: Inside) -> None:
    """It keeps what it shows, hears nothing of the new name, and is cleared by a withdrawal from it."""
    edit(filled, PUBLISHED, PUBLISHED + "  - {kind: local, name: old, path: old, datasets: [lev*]}\n")
    assert filled.kfm("project", "--json").code == 0
    named(filled)
    edit(filled, PUBLISHED, PUBLISHED + "  - {kind: local, name: old, path: old, datasets: [lev*]}\n")
    assert rename(filled, "--yes", *WHY).code == 0
    old = filled.folder / "old"
    assert sorted(path.name for path in old.iterdir()) == ["levels"]
    assert len(list((old / "levels/current/data").rglob("*.csv"))) == 3
    notes = filled.kfm("config", "check", "--json").document["notes"]
    assert any(one["target"] == "old" for one in notes), notes
    done = filled.kfm("withdraw", "gauges", "--target", "old", "--purge", "--yes", "--json", *WHY)
    assert done.code == 0, done
    assert json.loads((old / "levels/current/withdrawn.json").read_bytes())["state"] == "withdrawn"
    assert not list(old.rglob("*.csv"))
    assert sorted(path.name for path in old.iterdir()) == ["levels"], "the new name is not told there"
    assert shown(filled, "gauges") == list(DAYS)


def test_a_target_that_names_it_by_an_earlier_id_takes_it(filled: Inside) -> None:
    """An id means the dataset, whichever of its names that is; a freeze and a policy, too."""
    named(filled, more="freezes: [{start: 2020-01-01, end: 2020-01-02, reason: past, datasets: [levels]}]")
    edit(filled, PUBLISHED, "path: published, datasets: [levels]}\n")
    assert rename(filled, "--yes", *WHY).code == 0
    assert shown(filled, "gauges") == list(DAYS)
    edit(filled, "end: 2020-01-02", "end: 2120-01-02")
    filled.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    assert day(filled, DAYS[0]).code == 3
    edit(filled, "datasets: [levels]}]", "datasets: [gau*]}]")
    assert day(filled, DAYS[0]).code == 3
    edit(filled, "datasets: [gau*]}]", "datasets: [rivers*]}]")
    assert day(filled, DAYS[0]).result["word"] == "published"


@pytest.mark.parametrize("name", ["levels", "gauges"])
def test_a_policy_about_any_name_holds(renamed: Inside, name: str) -> None:
    """What is forbidden to one of its names is forbidden to the dataset."""
    rule = (
        '@id("own.no")\n@gate("policy")\n@message("Not this one.")\n'
        f'forbid (principal, action, resource == Dataset::"{name}");\n'
    )
    renamed.write("own.cedar", rule)
    named(renamed, more="policies: [own.cedar]")
    renamed.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    ended = day(renamed, DAYS[0])
    assert (ended.code, "own.no" in ended.out) == (3, True), ended


def test_a_policy_may_ask_for_a_second_person(filled: Inside) -> None:
    """A renaming is asked for, and nothing is applied."""
    rule = (
        '@id("own.rename")\n@gate("policy")\n@message("A renaming needs a second person.")\n'
        'forbid (principal, action == Action::"rename", resource) '
        "unless { context.approvals.contains(resource) };\n"
    )
    filled.write("own.cedar", rule)
    named(filled, more="policies: [own.cedar]")
    asked = rename(filled, "--yes", *WHY)
    assert (asked.code, asked.document["applied"]) == (3, False), asked
    assert asked.document["request"]["kind"] == "change"
    assert not (filled.published / "gauges").exists()


def test_what_is_made_of_it_goes_on(filled: Inside) -> None:
    """A derived dataset that names its input by the earlier id reads it, and `config check` names the new
    one."""
    pipeline = (
        "def copy(context):\n    for one in context.inputs:\n"
        "        context.publisher.write_file('all.txt', one.read())\n"
    )
    filled.write("pipeline.py", pipeline)
    more = (
        "\n  - {id: made, dataset: made, kind: dataset, datasets: {levels: window}, window: P1D, "
        'pipeline: "pipeline.py:copy"}'
    )

    def derived(dataset: str, reads: str) -> None:
        configure(filled, dataset, reads=reads, others=more)
        edit(filled, "sources:\n", f"  - {{id: made, rights: {RIGHTS}}}\nsources:\n")

    derived("id: levels", "levels")
    first = filled.kfm("run", "--json", "--source", "made", "--window", f"{DAYS[0]}/P1D")
    assert first.result["word"] == "published", first
    derived("id: gauges, formerly: [levels]", "gauges")
    assert rename(filled, "--yes", *WHY).code == 0
    notes = filled.kfm("config", "check", "--json").document["notes"]
    assert any("names the dataset levels, which is called gauges now" in one["sentence"] for one in notes)
    same = filled.kfm("run", "--json", "--source", "made", "--window", f"{DAYS[0]}/P1D")
    assert same.result["word"] == "unchanged", "the name alone changes no input"
    pins = filled.rows("SELECT DISTINCT dataset_id FROM run_inputs")
    assert pins == [("levels",)]


def test_lineage_joins_the_two_addresses(renamed: Inside) -> None:
    """The renaming has the earlier address as its input and the new one as its output; later runs write the
    new one."""
    renamed.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    assert day(renamed, DAYS[0]).code == 0
    assert renamed.kfm("lineage", "deliver").code in (0, 1)
    lines = (renamed.state / "lineage/openlineage.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    change = next(one for one in events if one["job"]["name"].endswith(".rename"))
    assert [one["name"].rpartition("/")[2] for one in change["inputs"]] == ["levels"]
    assert [one["name"].rpartition("/")[2] for one in change["outputs"]] == ["gauges"]
    written = [out["name"] for one in events[-3:] for out in one["outputs"]]
    assert written
    assert all("/gauges" in name for name in written), written


def test_previews_approvals_and_evidence_are_of_the_same_dataset(renamed: Inside) -> None:
    """A dry-run, a bundle of evidence, `doctor`, `gc` and `status` know a renamed dataset."""
    renamed.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    planned = day(renamed, DAYS[0], "--dry-run")
    assert planned.code == 0, planned
    published = day(renamed, DAYS[0])
    assert published.result["word"] == "published"
    bundle = renamed.kfm("export", published.result["run_id"], "--to", "bundle", "--json")
    assert bundle.code == 0, bundle
    assert renamed.kfm("export", "--verify", "bundle", "--json").code == 0
    doctor = renamed.kfm("doctor", "--json")
    assert "does not show" not in doctor.out, doctor
    assert renamed.kfm("gc", "--yes", "--json", *WHY).code == 0
    assert shown(renamed, "gauges") == list(DAYS)
    assert document(renamed, "levels", "withdrawn.json")["renamed_to"] == "gauges"
    status = renamed.kfm("status", "--json").document
    assert status["pending_projections"] == []
    shutil.rmtree(renamed.published / "gauges")
    assert renamed.kfm("project", "--json").code == 0
    assert shown(renamed, "gauges") == list(DAYS), "what is gone is shown again"
    shutil.rmtree(renamed.published / "levels")
    assert renamed.kfm("project", "--json").code == 0
    assert document(renamed, "levels", "withdrawn.json")["renamed_to"] == "gauges"
