"""The command ``fedavot``, which is ``python -m fedavot`` as well."""

import sys

from fedavot.errors import MissingPackageError


def main() -> None:
    """Run the command line, or say what it lacks."""
    try:
        from fedavot.cli import main as command
    except MissingPackageError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)  # as the command line does for every other error
    command(prog_name="fedavot")


if __name__ == "__main__":
    main()
