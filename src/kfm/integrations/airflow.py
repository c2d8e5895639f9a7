"""Airflow 3 integration: pipelines as DAGs, `from kfm.integrations.airflow import dag_of`.

Nothing of Airflow is loaded before it is asked for: Airflow itself reads this module to learn what there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kfm.integrations.airflow_dags import NodeOperator as NodeOperator
    from kfm.integrations.airflow_dags import dag_of as dag_of

__all__ = ["NodeOperator", "dag_of", "get_provider_info"]


def get_provider_info() -> dict[str, Any]:
    """What Airflow's entry point `apache_airflow_provider` asks for."""
    return {
        "package-name": "kfm-kernel",
        "name": "kfm",
        "description": "Pipelines of kfm as DAGs: unchanged nodes are skipped.",
    }


def __getattr__(name: str) -> object:
    if name not in ("NodeOperator", "dag_of"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module, util

    if util.find_spec("airflow") is None:
        from kfm.model.errors import ExtraMissing

        raise ExtraMissing(
            "kfm.integrations.airflow needs Airflow 3.", remedy="uv pip install 'apache-airflow>=3'"
        )
    return getattr(import_module("kfm.integrations.airflow_dags"), name)
