"""``python -m fedavot.cli`` is the command line as well."""

from fedavot.cli import main

if __name__ == "__main__":
    main(prog_name="fedavot")
