"""Measure a judge on labelled examples, by command or before a run."""
