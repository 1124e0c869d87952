"""Check that Flower is installed, in a version with message-based strategies."""

from importlib import metadata

from fedavot._checks import require
from fedavot.errors import MissingPackageError

OLDEST = (1, 22)
"""First version of Flower with message-based strategies (``flwr.serverapp.strategy``)."""


def require_flower() -> None:
    """Raise unless Flower is installed in a version that this package can work with."""
    require("flower", "flwr", by="fedavot.flower")
    found = metadata.version("flwr")
    if _numbers(found) < OLDEST:
        wanted = f"flwr>={'.'.join(map(str, OLDEST))}"
        raise MissingPackageError(
            f"fedavot.flower needs {wanted}, found flwr {found}; pip install --upgrade '{wanted}'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version: (1, 41) for 1.41.0rc1."""
    parts = []
    for part in version.split(".")[:2]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        parts.append(int(digits or 0))
    return tuple(parts)
