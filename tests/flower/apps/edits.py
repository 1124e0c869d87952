"""The two edits that docs/flower.md asks of an app, made in the source of these apps."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent
APPS = (
    *("quickstart_numpy", "quickstart_sklearn", "quickstart_pytorch", "fl_tabular"),
    *("advanced_pytorch", "custom_mods", "secure_aggregation"),
)
CONFIG = {
    "num-server-rounds": 3,
    "fraction-evaluate": 1.0,
    "local-epochs": 1,
    "batch-size": 32,
    "learning-rate": 0.1,
}
SERVER = r"    strategy = (\w+\(.*\))\n"
CLIENT = r"client_app = (.*)\n"
LINE = "from fedavot.flower import FedAVOT, introduce\n"
# SecAgg+ has Flower's older interfaces, and edits of its own in docs/production.md.
SECURE = {
    r"(LegacyContext\(context, rounds, )strategy\)": r"\1SecureFedAVOT(strategy, workflow))",
    r"mods=\[secaggplus_mod\]": "mods=[secaggplus_mod, secure_count]",
}
SECURE_LINE = "from fedavot.flower.private.secure import SecureFedAVOT, secure_count\n"


def source(app):
    """Return an app as Flower's user wrote it."""
    return (FOLDER / f"{app}.py").read_text(encoding="utf-8")


def edited(app, options=""):
    """Return the app with FedAVOT: one line on the server, one on the client, one import.

    ``options`` are further arguments of FedAVOT, as they would be written.
    """
    text, line, edits = source(app), LINE, SECURE
    if app == "secure_aggregation":
        line = SECURE_LINE
    else:
        given = f", {options}" if options else ""
        edits = {
            SERVER: lambda found: f"    strategy = FedAVOT({found[1]}{given})\n",
            CLIENT: r"client_app = introduce(\1)\n",
        }
    for pattern, replacement in edits.items():
        text, count = re.subn(pattern, replacement, text)
        if count != 1:
            raise ValueError(f"{pattern!r} matches {count} lines of {app}, not one")
    first = re.search(r"^(from|import) ", text, re.MULTILINE)
    return text[: first.start()] + line + text[first.start() :]
