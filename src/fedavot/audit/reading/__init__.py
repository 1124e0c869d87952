"""Participation logs and importance, from files of any kind."""
