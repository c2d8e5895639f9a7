"""A source of kfm as a task of Airflow 3, each date its window. Its contract: README.md beside this file."""

import os
from datetime import UTC, datetime

from airflow.sdk import DAG
from airflow.timetables.trigger import CronTriggerTimetable

from kfm.integrations.airflow import KfmRunOperator, kfm_asset

HOME = os.environ.get("LEVELS_HOME", os.path.join(os.path.dirname(os.path.abspath(__file__)), "levels"))

with DAG(
    "levels",
    schedule=CronTriggerTimetable("0 6 * * *", timezone="UTC"),
    start_date=datetime(2026, 3, 1, tzinfo=UTC),
    catchup=False,
):
    # With `conn_id` instead of `project` it asks a service, and waits in Airflow's triggerer.
    KfmRunOperator(task_id="run", source="daily", project=HOME, outlets=[kfm_asset("levels", "example")])
