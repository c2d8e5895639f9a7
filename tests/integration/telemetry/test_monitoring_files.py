"""The dashboard and the alert rules that are shipped."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from kfm.telemetry.metric_catalogue import metrics
from tests.integration.telemetry.promql import read_query

ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "src" / "kfm" / "contracts" / "monitoring"
RULES = MONITORING / "alerts.yml"

UNITS = {"percentunit", "none", "short", "s", "watth", "massg"}
FUNCTIONS = {
    "sum", "max", "count", "rate", "increase", "time", "vector", "absent", "histogram_quantile",
    "min_over_time", "count_over_time",
}  # fmt: skip
VARIABLES = {"$__rate_interval": "5m", "$__range": "7d", "$dataset": ".*", "${datasource}": "x"}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def alerts() -> list[dict[str, Any]]:
    document = YAML(typ="safe").load(RULES.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def queries() -> list[tuple[str, str]]:
    """Where a query stands, and the query with its variables filled in."""
    found = [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    found += [(rule["alert"], rule["expr"]) for rule in alerts()]
    for name, value in VARIABLES.items():
        found = [(where, query.replace(name, value)) for where, query in found]
    return found


def exposed_names() -> dict[str, tuple[str, ...]]:
    """Every series that the ledger's metrics are exposed as, with its labels."""
    names: dict[str, tuple[str, ...]] = {}
    for metric in metrics().values():
        if metric.kind == "histogram":
            names |= {
                f"{metric.exposed}_{part}": (*metric.labels, "le") for part in ("bucket", "sum", "count")
            }
        else:
            names[metric.exposed] = metric.labels
    return names


@pytest.mark.req("UPD-15")
@pytest.mark.parametrize(("where", "query"), queries(), ids=lambda value: value[:40])
def test_queries_name_metrics_that_exist(where: str, query: str) -> None:
    """Every query names metrics of the catalogue, by labels that they have."""
    known, read = exposed_names(), read_query(query)
    assert read.selectors, query
    for selector in read.selectors:
        assert selector.name in known, f"{where}: there is no metric {selector.name}"
        assert set(selector.labels) <= set(known[selector.name]), f"{where}: {selector}"
    assert read.functions <= FUNCTIONS
    assert read.grouping <= {label for selector in read.selectors for label in known[selector.name]}


def test_reading_a_query_finds_what_is_wrong() -> None:
    """The check above would see a name that does not exist, wherever it stands."""
    read = read_query(
        'sum by (dataset) (rate(kfm_nope_total{x=~"kfm_not_me"}[5m])) / on (y) other offset 1h > 2'
    )
    assert [selector.name for selector in read.selectors] == ["kfm_nope_total", "other"]
    assert read.selectors[0].labels == ("x",)
    assert (read.functions, read.grouping) == ({"sum", "rate"}, {"dataset", "y"})


def test_dashboard_can_be_imported_anywhere() -> None:
    """Nothing is tied to one Grafana: data source and dataset are variables, ids are unique, panels fit."""
    found = dashboard()
    assert found["schemaVersion"] >= 36
    assert found["id"] is None
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", found["uid"])
    assert [variable["name"] for variable in found["templating"]["list"]] == ["datasource", "dataset"]
    everything = found["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in everything)
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        place = panel["gridPos"]
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not mine & taken, f"{panel['title']} lies on another"
        taken |= mine


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_panels_explain_themselves(panel: dict[str, Any]) -> None:
    """Each panel has a title, a description, a unit, thresholds and a variable data source."""
    assert len(panel["description"]) > 20
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"] in UNITS
    assert defaults["thresholds"]["steps"][0]["value"] is None
    for target in (panel, *panel["targets"]):
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    references = [target["refId"] for target in panel["targets"]]
    assert len(set(references)) == len(references)


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_alerts_lead_somewhere(rule: dict[str, Any]) -> None:
    """Each alert says what is wrong, how bad it is, and links a section of the documentation that exists."""
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].endswith(".")
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor == rule["alert"].lower()
    assert anchor in {heading.strip("`").lower() for heading in headings}


def test_queries_are_promql(promtool: str, tmp_path: Path) -> None:
    """Prometheus itself can parse every query of the dashboard and every rule."""
    rules = [{"record": f"query:{number}", "expr": query} for number, (_, query) in enumerate(queries())]
    path = tmp_path / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    for checked in (path, RULES):
        done = subprocess.run([promtool, "check", "rules", str(checked)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


CASES: dict[str, dict[str, Any]] = {
    "KfmMetricsAbsent": {
        "series": {"something_else": "1+0x60"},
        "at": "15m",
        "labels": {},
    },
    "KfmChainBroken": {
        "series": {"kfm_audit_chain_broken": "0x7 1+0x60"},
        "at": "10m",
        "labels": {},
    },
    "KfmHighErrorRate": {
        "series": {
            'kfm_updater_runs_total{dataset="rain",trigger="cron",outcome="complete"}': "0+0.1x600",
            'kfm_updater_runs_total{dataset="rain",trigger="cron",outcome="fail"}': "0+0.1x600",
            'kfm_updater_runs_total{dataset="snow",trigger="cron",outcome="complete"}': "0+0.1x600",
            'kfm_updater_runs_total{dataset="snow",trigger="cron",outcome="fail"}': "0+0.01x600",
            'kfm_updater_runs_total{dataset="sun",trigger="cron",outcome="fail"}': "0x400 1x200",
        },
        "at": "7h",
        "labels": {"dataset": "rain"},
    },
    "KfmDatasetLate": {
        "series": {
            'kfm_dataset_freshness_lag_seconds{dataset="rain"}': "0x10 0+60x100",
            'kfm_dataset_freshness_lag_seconds{dataset="snow"}': "0x10 0+60x20 0x80",
        },
        "at": "45m",
        "labels": {"dataset": "rain"},
    },
    "KfmDatasetFailing": {
        "series": {
            'kfm_dataset_health{dataset="rain",health="failing"}': "0x10 1x100",
            'kfm_dataset_health{dataset="snow",health="failing"}': "0x110",
            'kfm_dataset_health{dataset="snow",health="late"}': "1x110",
        },
        "at": "45m",
        "labels": {"dataset": "rain"},
    },
    "KfmDatasetNeverUpdated": {
        "series": {
            'kfm_dataset_info{dataset="rain"}': "1x3000",
            'kfm_dataset_info{dataset="snow"}': "1x3000",
            'kfm_dataset_last_success_timestamp_seconds{dataset="snow"}': "0+60x3000",
        },
        "at": "25h",
        "labels": {"dataset": "rain"},
    },
    "KfmRunStuck": {
        "series": {
            'kfm_updater_runs_open{dataset="rain"}': "0x10 1x600",
            'kfm_updater_runs_open{dataset="snow"}': "0x10 1x100 0x1 1x500",
        },
        "at": "6h40m",
        "labels": {"dataset": "rain"},
    },
    "KfmRetriesExhausted": {
        "series": {
            'kfm_call_gave_up_total{node="fetch",error_class="timeout"}': "_x90 1x200",
            'kfm_call_gave_up_total{node="publish",error_class="timeout"}': "4x300",
            'kfm_build_info{version="1"}': "1x300",
        },
        "at": "95m",
        "labels": {"node": "fetch", "error_class": "timeout"},
    },
    "KfmProviderDown": {
        "series": {
            'kfm_breaker_state{provider="gauges"}': "0x10 2x9 1x1 2x9 1x1 2x60",
            'kfm_breaker_state{provider="radar"}': "0x10 2x9 1x1 0x100",
        },
        "at": "50m",
        "labels": {"provider": "gauges"},
    },
    "KfmWorkHeld": {
        "series": {"kfm_held_items": "2x2000", "kfm_held_oldest_age_seconds": "0+60x2000"},
        "at": "25h",
        "labels": {},
    },
    "KfmOutboxGrowing": {
        "series": {
            'kfm_outbox_waiting{topic="openlineage"}': "5x200",
            'kfm_outbox_oldest_age_seconds{topic="openlineage"}': "0+60x200",
        },
        "at": "80m",
        "labels": {"topic": "openlineage"},
    },
    "KfmUnitBacklog": {
        "series": {
            'nodd_sns_wal_records_total{dataset="hrrr",status="pending"}': "20000x300",
            'nodd_sns_wal_records_total{dataset="mrms",status="pending"}': (
                "20000x30 5x1 20000x30 5x1 20000x238"
            ),
        },
        "at": "100m",
        "labels": {"dataset": "hrrr", "status": "pending"},
    },
    "KfmUnitsGivenUp": {
        "series": {
            'nodd_sns_wal_records_total{dataset="hrrr",status="quarantined"}': "1x3000",
            'nodd_sns_wal_records_total{dataset="mrms",status="failed"}': "0x3000",
        },
        "at": "26h",
        "labels": {"dataset": "hrrr"},
    },
    "KfmDeadMessages": {
        "series": {
            'nodd_sns_dead_messages_total{error_code="BODY_INVALID"}': "1x60 2x200",
            'nodd_sns_dead_messages_total{error_code="BUCKET_UNKNOWN"}': "7x300",
        },
        "at": "90m",
        "labels": {"error_code": "BODY_INVALID"},
    },
    "KfmWatermarkBehind": {
        "series": {
            'nodd_sns_watermark_timestamp_seconds{dataset="hrrr"}': "0x3000",
            'nodd_sns_watermark_timestamp_seconds{dataset="mrms"}': "0+60x3000",
        },
        "at": "25h",
        "labels": {"dataset": "hrrr"},
    },
    "KfmSwitchThrown": {
        "series": {
            'kfm_switch_position{scope="dataset:rain"}': "2x2000",
            'kfm_switch_set_timestamp_seconds{scope="dataset:rain"}': "0x2000",
            'kfm_switch_position{scope="all"}': "0x2000",
            'kfm_switch_set_timestamp_seconds{scope="all"}': "0x2000",
        },
        "at": "25h",
        "labels": {"scope": "dataset:rain"},
    },
}
CALM = {
    'kfm_build_info{version="1"}': "1x3000",
    "kfm_audit_chain_broken": "0x3000",
    'kfm_updater_runs_total{dataset="rain",trigger="cron",outcome="complete"}': "0+0.1x3000",
    'kfm_updater_runs_total{dataset="rain",trigger="cron",outcome="fail"}': "0x3000",
    'kfm_dataset_info{dataset="rain"}': "1x3000",
    'kfm_dataset_last_success_timestamp_seconds{dataset="rain"}': "0+60x3000",
    'kfm_updater_runs_open{dataset="rain"}': "0 1 0 1 0x2996",
    'kfm_call_gave_up_total{node="fetch",error_class="timeout"}': "3x3000",
    'kfm_outbox_waiting{topic="openlineage"}': "2x3000",
    'kfm_outbox_oldest_age_seconds{topic="openlineage"}': "30x3000",
    'kfm_switch_position{scope="all"}': "0x3000",
    'kfm_switch_set_timestamp_seconds{scope="all"}': "0x3000",
    'kfm_breaker_state{provider="gauges"}': "0x100 2x10 1x1 0x2889",
    "kfm_held_items": "0x100 1x600 0x2300",
    'nodd_sns_wal_records_total{dataset="hrrr",status="pending"}': "0 30000 0 10 20000 0x2995",
    'nodd_sns_wal_records_total{dataset="hrrr",status="failed"}': "0x100 3x600 0x2300",
    'nodd_sns_dead_messages_total{error_code="BUCKET_UNKNOWN"}': "4x3000",
    'nodd_sns_watermark_timestamp_seconds{dataset="hrrr"}': "0+60x3000",
    "kfm_held_oldest_age_seconds": "0x100 0+60x600 0x2300",
}


def check_rules(promtool: str, folder: Path, tests: list[dict[str, Any]]) -> None:
    path = folder / "test.yml"
    document = {"rule_files": [str(RULES)], "evaluation_interval": "5m", "tests": tests}
    path.write_text(json.dumps(document))
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def simulated(series: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def test_every_rule_is_tried() -> None:
    """No alert ships that was never seen to fire."""
    assert set(CASES) == {rule["alert"] for rule in alerts()}


@pytest.mark.req("UPD-15")
@pytest.mark.parametrize("name", CASES)
def test_rules_fire(name: str, promtool: str, tmp_path: Path) -> None:
    """On data that shows the trouble, also by its absence, the rule fires, for the right one only."""
    case = CASES[name]
    firing = f'ALERTS{{alertname="{name}",alertstate="firing"}}'
    labels = {"alertname": name, "alertstate": "firing", **case["labels"]}
    (rule,) = (rule for rule in alerts() if rule["alert"] == name)
    labels["severity"] = rule["labels"]["severity"]
    told = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    check_rules(
        promtool,
        tmp_path,
        [
            {
                "interval": "1m",
                "input_series": simulated(case["series"]),
                "promql_expr_test": [
                    {
                        "expr": firing,
                        "eval_time": case["at"],
                        "exp_samples": [{"labels": f"ALERTS{{{told}}}", "value": 1}],
                    }
                ],
            }
        ],
    )


def test_rules_are_silent_while_all_is_well(promtool: str, tmp_path: Path) -> None:
    """A quiet world raises no alert, not even while it is new."""
    moments = ["5m", "20m", "2h", "8h", "30h", "49h"]
    check_rules(
        promtool,
        tmp_path,
        [
            {
                "interval": "1m",
                "input_series": simulated(CALM),
                "promql_expr_test": [
                    {"expr": 'ALERTS{alertstate="firing"}', "eval_time": moment, "exp_samples": []}
                    for moment in moments
                ],
            }
        ],
    )


def test_words_of_an_alert_are_filled_in(promtool: str, tmp_path: Path) -> None:
    """What a person reads names the dataset and the share of failures, not a placeholder."""
    case = CASES["KfmHighErrorRate"]
    words = {
        "summary": "Updates of rain fail.",
        "description": "50% of the attempts of the last 6 hours failed.",
        "runbook_url": "docs/how-to/monitor.md#kfmhigherrorrate",
    }
    check_rules(
        promtool,
        tmp_path,
        [
            {
                "interval": "1m",
                "input_series": simulated(case["series"]),
                "alert_rule_test": [
                    {
                        "eval_time": case["at"],
                        "alertname": "KfmHighErrorRate",
                        "exp_alerts": [
                            {
                                "exp_labels": {"severity": "warning", "dataset": "rain"},
                                "exp_annotations": words,
                            }
                        ],
                    }
                ],
            }
        ],
    )
