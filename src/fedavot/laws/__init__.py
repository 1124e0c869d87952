"""Availability laws: distributions over non-empty cohorts, one file each."""
