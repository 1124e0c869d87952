"""Optional packages: code that needs one says in one line which extra brings it."""

from importlib.util import find_spec

from fedavot.errors import MissingPackageError


def require(extra: str, *packages: str, by: str) -> None:
    """Raise unless the packages that an extra of fedavot brings are installed.

    Parameters
    ----------
    extra : str
        Name of the extra, as in ``pip install 'fedavot[extra]'``.
    *packages : str
        Import names.
    by : str
        What needs them, for the message.
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        *first, last = missing
        needed = f"{', '.join(first)} and {last}" if first else last
        raise MissingPackageError(
            f"{by} needs {needed}; pip install 'fedavot[{extra}]', or, in a clone of "
            f"the repository, pip install '.[{extra}]'"
        )
