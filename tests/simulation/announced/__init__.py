"""Worlds of announced objects: queues, pollers, workers, and a catalogue that must come out right."""
