"""Announced objects, such as NOAA's Open Data Dissemination: messages, datasets, units, catalogue."""
