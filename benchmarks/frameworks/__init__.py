"""Federated training by other frameworks, each in a process of the peers' own interpreter.

A module a framework. It has the name of its DISTRIBUTION and functions of a problem that return
another, which plays every round anew and returns the last model. Frameworks are imported there and
nowhere else.
"""
