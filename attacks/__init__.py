"""Randomised attacks on the library: each module is a command that takes a seed and prints a table.

References here share no code with the library; the tests run a small slice of every attack.
"""
