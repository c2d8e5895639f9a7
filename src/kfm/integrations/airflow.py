"""Airflow 3 provider: runs and datasets of kfm, and pipelines as DAGs.

Nothing of Airflow is loaded before it is asked for: Airflow itself reads this module to learn what there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from kfm.integrations.airflow_dags import NodeOperator as NodeOperator
    from kfm.integrations.airflow_dags import dag_of as dag_of
    from kfm.integrations.airflow_provider import KfmDatasetSensor as KfmDatasetSensor
    from kfm.integrations.airflow_provider import KfmHook as KfmHook
    from kfm.integrations.airflow_provider import KfmRunOperator as KfmRunOperator
    from kfm.integrations.airflow_provider import kfm_asset as kfm_asset

__all__ = [
    "KfmDatasetSensor",
    "KfmHook",
    "KfmRunOperator",
    "NodeOperator",
    "dag_of",
    "get_provider_info",
    "kfm_asset",
]

SCHEME = "kfm"  # of assets
_DAGS, _PROVIDER = "kfm.integrations.airflow_dags", "kfm.integrations.airflow_provider"
_WHERE = {
    "NodeOperator": _DAGS,
    "dag_of": _DAGS,
    "KfmDatasetSensor": _PROVIDER,
    "KfmHook": _PROVIDER,
    "KfmRunOperator": _PROVIDER,
    "kfm_asset": _PROVIDER,
}


def get_provider_info() -> dict[str, Any]:
    """What Airflow's entry point `apache_airflow_provider` asks for."""
    provided = [{"integration-name": "kfm", "python-modules": [_PROVIDER]}]
    return {
        "package-name": "kfm-kernel",
        "name": "kfm",
        "description": "Runs and datasets of kfm; pipelines of kfm as DAGs.",
        "integrations": [{"integration-name": "kfm", "tags": ["service"]}],
        "operators": provided,
        "sensors": provided,
        "hooks": provided,
        "triggers": provided,
        "connection-types": [
            {
                "connection-type": "kfm",
                "hook-name": "kfm",
                "hook-class-name": f"{_PROVIDER}.KfmHook",
                "ui-field-behaviour": {
                    "hidden-fields": ["login"],
                    "relabeling": {"password": "Token", "schema": "Schema (https or http)"},
                    "placeholders": {"host": "kfm.example.org", "port": "8377", "schema": "https"},
                },
                "conn-fields": {
                    "prefix": {
                        "label": "Prefix",
                        "schema": {"type": ["string", "null"]},
                        "description": "The path below which the service is mounted, if it has one",
                    },
                    "ca_file": {
                        "label": "CA file",
                        "schema": {"type": ["string", "null"]},
                        "description": "Certificates to trust, if the service has one of your own",
                    },
                },
            }
        ],
        "asset-uris": [{"schemes": [SCHEME], "handler": f"{__name__}.sanitized"}],
    }


def sanitized(parts: SplitResult) -> SplitResult:
    """An asset's address, `kfm://PLACE/DATASET`, checked for Airflow."""
    if not parts.netloc or parts.path.strip("/").count("/") or not parts.path.strip("/") or parts.query:
        raise ValueError("The address of a dataset is kfm://PLACE/DATASET.")
    return parts


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module, util

    if util.find_spec("airflow") is None:
        from kfm.model.errors import ExtraMissing

        raise ExtraMissing(
            "kfm.integrations.airflow needs Airflow 3.", remedy="uv pip install 'apache-airflow>=3.3'"
        )
    return getattr(import_module(_WHERE[name]), name)
