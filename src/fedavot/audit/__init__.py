"""Audit a federation from its participation log: who took part, and who could have."""

from fedavot.audit.participation import Participation
from fedavot.audit.reading import read_log

__all__ = ["Participation", "read_log"]
