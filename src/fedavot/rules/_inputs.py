"""Checks of the inputs of rules."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedavot._checks import Floats, as_amount, as_distribution, as_floats
from fedavot._clients import in_client_order
from fedavot.alignment import Alignment, Status
from fedavot.errors import ImportanceError, OptionError, RuleError


def as_shares(
    importance: ArrayLike | Mapping[str, float], names: Sequence[str] | None = None
) -> Floats:
    """Return an importance, shape (n_clients,); by client name only if there are names."""
    if isinstance(importance, Mapping) and names is None:
        raise ImportanceError(
            "importance is given by client name, but the names' order is not known here; pass an "
            "array in client order, such as fedavot.importance.from_mapping(importance, clients)"
        )
    ordered = in_client_order(importance, names)
    return as_distribution(ordered, what="importance", item="client", error=ImportanceError)


def as_part(value: float, *, what: str, below_one: bool = False) -> float:
    """Return a number from 0 to 1, or below 1."""
    part = as_amount(value, what=what)
    if part > 1.0 or (below_one and part == 1.0):
        raise OptionError(
            f"{what} is {part}; it must be {'at least 0 and below' if below_one else 'from 0 to'} 1"
        )
    return part


def inverse_inclusion(
    rule: str, importance: ArrayLike, inclusion: ArrayLike | None
) -> tuple[Floats, Floats]:
    """Return p_i and p_i/π_i, shape (n_clients,), refusing clients that matter but never take part.

    Parameters
    ----------
    rule : str
        The rule's name, for messages.
    importance, inclusion : array-like of shape (n_clients,)
        p, and π with π_i = P(i ∈ S).
    """
    shares = as_shares(importance)
    if inclusion is None:
        raise RuleError(
            f"rule {rule!r} needs inclusion probabilities P(i ∈ S), and none were given; give a "
            "law's inclusion(), or use a rule that needs none, such as fedavot-online or fedau"
        )
    chances = as_floats(inclusion, what="inclusion", error=RuleError)
    if chances.size != shares.size:
        raise RuleError(
            f"inclusion has {chances.size} entries, but importance has {shares.size} clients"
        )
    bad = np.flatnonzero(~((chances >= 0) & (chances <= 1 + 1e-9)))
    if bad.size:
        raise RuleError(
            f"the inclusion probability of client {bad[0]} is {chances[bad[0]]}; it must be "
            "between 0 and 1"
        )
    never = np.flatnonzero((chances == 0) & (shares > 0))
    if never.size:
        raise RuleError(
            f"client {never[0]} has importance {shares[never[0]]:.4g} and inclusion probability 0, "
            f"by which rule {rule!r} would have to divide; set its importance to 0"
        )
    return shares, np.divide(shares, chances, out=np.zeros(shares.size), where=chances > 0)


def as_converged(
    rule: str, alignment: Alignment | None, *, allow_unconverged: bool | None
) -> Alignment:
    """Return an alignment that met its tolerance, or any alignment if that is allowed.

    ``allow_unconverged`` is None for a rule that has no such option.
    """
    if not isinstance(alignment, Alignment):
        raise RuleError(
            f"rule {rule!r} needs an alignment, found {alignment!r}; give align(importance, law), "
            "or use fedavot-online, which needs no law"
        )
    if alignment.status is Status.UNCONVERGED and not allow_unconverged:
        times = f"{alignment.iterations} iteration{'s' * (alignment.iterations != 1)}"
        allow = "" if allow_unconverged is None else "; or pass allow_unconverged=True"
        raise RuleError(
            f"rule {rule!r} was given an alignment that did not converge (residual "
            f"{alignment.residual:.2e} after {times}): {alignment.message}{allow}"
        )
    return alignment
