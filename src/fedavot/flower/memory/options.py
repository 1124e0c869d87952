"""Options of the memory."""

from dataclasses import dataclass
from typing import Any

from fedavot._checks import as_amount, one_of, shown
from fedavot.errors import OptionError
from fedavot.rules.steady import constants_of

PLACES = ("server", "clients")


@dataclass(frozen=True)
class Memory:
    """Where clients' updates are remembered, and how; see `fedavot.rules.steady`.

    Attributes
    ----------
    where : str
        "server": one model per client, in a file in the folder. "clients": every client keeps its
        own, and the server keeps only their mean; needs ``introduce(app, memory=True)`` in the
        ClientApp.
    share : float
        β, from 0 to 1: the fraction of the innovation of present clients that absent clients are
        assumed to share.
    damping : float or None
        c, in rounds; twice the mean return time if None.
    trust : float or None
        α, from 0 to 1; learnt if None. With 1, clients that keep their own memory upload one model
        per round; with less, two.
    half_life : float or None
        Number of rounds after which a memory that is not renewed loses half of its weight; None for
        no decay.
    """

    where: str = "server"
    share: float = 0.5
    damping: float | None = None
    trust: float | None = None
    half_life: float | None = None

    def __post_init__(self) -> None:
        one_of(self.where, PLACES, what="memory")
        constants_of(share=self.share, damping=self.damping, trust=self.trust)
        if self.half_life is not None:
            as_amount(self.half_life, what="half_life", positive=True)

    @property
    def constants(self) -> dict[str, Any]:
        """The arguments of `ServerMemory.start`."""
        return {
            "share": self.share,
            "damping": self.damping,
            "trust": self.trust,
            "half_life": self.half_life,
        }


def as_memory(given: "Memory | str | None") -> Memory | None:
    """Return the options for a keyword; None for no memory."""
    if given is None or isinstance(given, Memory):
        return given
    if not isinstance(given, str) or given not in PLACES:
        raise OptionError(
            f"memory is {shown(given)}; it must be 'server', 'clients', Memory(...) or None"
        )
    return Memory(given)
