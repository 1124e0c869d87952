"""Participation logs and importance, read from files of any supported format."""
