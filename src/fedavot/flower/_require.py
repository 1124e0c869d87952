"""Flower is an extra: say in one line what to install where it is missing or too old."""

from importlib import metadata

from fedavot.errors import MissingPackageError

LEAST = (1, 22)
"""First version of Flower with message-based strategies (``flwr.serverapp.strategy``)."""


def require_flower() -> None:
    """Raise unless Flower is installed in a version this package can work with."""
    wanted = f"flwr>={'.'.join(map(str, LEAST))}"
    try:
        found = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        raise MissingPackageError(
            f"fedavot.flower needs {wanted}, which is not installed; pip install 'fedavot[flower]'"
        ) from None
    if _numbers(found) < LEAST:
        raise MissingPackageError(
            f"fedavot.flower needs {wanted}, found flwr {found}; pip install --upgrade '{wanted}'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (1, 41) for 1.41.0rc1."""
    parts = []
    for part in version.split(".")[:2]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        parts.append(int(digits or 0))
    return tuple(parts)
