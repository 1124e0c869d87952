"""What a user may choose: how weights are found, and who the clients are."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedavot._checks import as_amount, as_seed, as_size, one_of
from fedavot._files import PathLike
from fedavot.alignment import Alignment, Status
from fedavot.errors import FileFormatError, OptionError
from fedavot.online import STEP

NAMES = ("auto", "registered", "asked", "node-id")


@dataclass(frozen=True, kw_only=True)
class Weighting:
    """How the weights of a cohort are found.

    Attributes
    ----------
    alignment : Alignment or None
        Weights computed beforehand, from an audit or a known law; needs ``clients``. None learns
        them on the way.
    clients : sequence of str or None
        The alignment's clients by name, in its order.
    softness : float
        Above 0, weights trade closeness to the importance for evenness.
    memory : bool
        Whether the last update of every client stands in for it while it is absent. Takes one
        model a client on disk.
    cohort_size : int or None
        How many of the available to ask, chosen so that the aggregate is unbiased for what all of
        them would give, as long as those chosen reply (the online aligner makes up for those who
        do not, an alignment cannot); None leaves the choice to the wrapped strategy.
    step : float
        Step of the online aligner.
    seed : int
        Seed for the choice of whom to ask.
    """

    alignment: Alignment | None = None
    clients: Sequence[str] | None = None
    softness: float = 0.0
    memory: bool = False
    cohort_size: int | None = None
    step: float = STEP
    seed: int = 0

    def __post_init__(self) -> None:
        as_amount(self.softness, what="softness")
        as_amount(self.step, what="step", positive=True)
        as_seed(self.seed)
        if self.cohort_size is not None:
            as_size(self.cohort_size, what="cohort_size", low=1)
        if self.alignment is not None:
            self._check_alignment(self.alignment)
        elif self.clients is not None:
            raise OptionError("clients names an alignment's clients; give the alignment as well")

    def _check_alignment(self, alignment: Alignment) -> None:
        if not isinstance(alignment, Alignment):
            raise OptionError(f"alignment is {alignment!r}; it must be a fedavot.Alignment")
        if self.clients is None or len(self.clients) != alignment.n_clients:
            count = "none" if self.clients is None else len(self.clients)
            raise OptionError(
                f"the alignment has {alignment.n_clients} clients and clients names {count}; name "
                "each in the alignment's order"
            )
        wrong = [name for name in self.clients if not isinstance(name, str)]
        if wrong:
            raise OptionError(f"clients must be names, as text; found {wrong[0]!r}")
        if len(set(self.clients)) < len(self.clients):
            raise OptionError("clients names a client more than once")
        if alignment.status is Status.UNCONVERGED:
            raise OptionError(f"the alignment is not to be used: {alignment.message}")
        if self.softness > 0:
            raise OptionError(
                "softness belongs to the online aligner; align(..., softness=...) makes an "
                "alignment soft"
            )

    @classmethod
    def load(cls, path: PathLike, *, memory: bool = False, cohort_size: int | None = None) -> Self:
        """Take the weights from an alignment file that names its clients, such as an audit's.

        Parameters
        ----------
        path : path
            What `Alignment.save` writes, with the clients' names in a list ``clients`` beside.
        memory, cohort_size
            As above.
        """
        alignment = Alignment.load(path)
        clients = json.loads(Path(path).read_text(encoding="utf-8")).get("clients")
        if not isinstance(clients, list) or not all(isinstance(name, str) for name in clients):
            raise FileFormatError(
                f"{path} does not name its clients; give alignment and clients to Weighting"
            )
        return cls(alignment=alignment, clients=clients, memory=memory, cohort_size=cohort_size)


@dataclass(frozen=True, kw_only=True)
class Clients:
    """Who the clients are, and what is accepted from them.

    Attributes
    ----------
    names : str
        Where names come from: "registered" under node authentication, "asked" of each new node
        once, "node-id" (stable only under node authentication), or "auto": registered if the
        federation registers names at all, otherwise asked.
    key : str
        What to ask for: a key of the node configuration.
    unlisted : float or None
        Importance, on the mapping's scale, of clients that a mapping does not name; None refuses
        them.
    norm_limit : float or None
        An update whose norm is more than this many times the median of recent ones is excluded;
        None accepts any finite update.
    """

    names: str = "auto"
    key: str = "partition-id"
    unlisted: float | None = None
    norm_limit: float | None = 100.0

    def __post_init__(self) -> None:
        one_of(self.names, NAMES, what="names")
        if not isinstance(self.key, str) or not self.key:
            raise OptionError(f"key is {self.key!r}; it must be a key of the node configuration")
        if self.unlisted is not None:
            as_amount(self.unlisted, what="unlisted")
        if self.norm_limit is not None and as_amount(self.norm_limit, what="norm_limit") <= 1:
            raise OptionError(f"norm_limit is {self.norm_limit}; it must be above 1, or None")
