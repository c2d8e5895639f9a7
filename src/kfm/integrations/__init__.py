"""Pipelines inside other frameworks: Airflow, LangGraph."""
