"""Findings as a page, pictures, sentences and files."""
