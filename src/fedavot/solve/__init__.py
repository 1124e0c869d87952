"""Find alignments: `align` picks a solver and reports what it reached."""

from fedavot.solve._align import align

__all__ = ["align"]
