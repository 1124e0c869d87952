"""A round in progress, from the messages sent to the record in the log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, Metadata, MetricRecord

from fedavot.flower.kept.log import Round
from fedavot.flower.worth.replies import Sorted


@dataclass(frozen=True, kw_only=True)
class OpenRound:
    """A round between sending messages and aggregating replies.

    Attributes
    ----------
    number : int
        Number of the round, from 1.
    model : ArrayRecord
        The model that was sent.
    available, refused
        As in `Round`.
    asked : dict from client name to Metadata
        Metadata of the message sent to each client.
    shares : dict of float
        Weights of the clients asked if all of them reply; empty if the wrapped strategy sampled
        them.
    """

    number: int
    model: ArrayRecord
    available: list[str]
    refused: dict[str, str]
    asked: dict[str, Metadata]
    shares: dict[str, float] = field(default_factory=dict)

    def record(
        self,
        found: Sorted,
        weights: Mapping[str, float],
        *,
        metrics: MetricRecord | None,
        **told: Any,
    ) -> Round:
        """Return the record of the round for the log; ``told`` sets further fields."""
        squares = sum(weight**2 for weight in weights.values())
        return Round(
            round=self.number,
            available=self.available,
            asked=sorted(self.asked),
            replied=list(found.usable),
            failed=found.failed,
            late=found.late,
            excluded=found.excluded,
            refused=self.refused,
            weights=dict(weights),
            effective_cohort_size=1.0 / squares if squares else 0.0,
            metrics=dict(metrics or {}),
            **told,
        )
