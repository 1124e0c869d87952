"""Run the apps in Flower's simulation: python tests/flower/apps/run_apps.py [APP ...].

Each app runs twice, as it is and with the two edits, in a folder made for it with the files that
``flwr run`` needs. It takes about a minute per app on two cores; a run that does not complete ends
the command with an error.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "examples" / "flower-mnist")]

from edits import APPS, CONFIG, edited, source  # noqa: E402
from simulation import simulation  # noqa: E402

N_CLIENTS = 4
SHARED = ("networks.py", "partitions.py")
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "Like one of Flower's examples"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedavot"
fab-include = ["*.py"]

[tool.flwr.app.components]
serverapp = "app:server_app"
clientapp = "app:client_app"

[tool.flwr.app.config]
out = ""
"""


def main():
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    # Without the empty list among the choices, argparse refuses that there are none.
    parser.add_argument("apps", nargs="*", choices=[*APPS, []], default=[])
    chosen = parser.parse_args().apps or APPS
    with tempfile.TemporaryDirectory() as made, simulation() as flower:
        for name in chosen:
            for kind, text in (("as it is", source(name)), ("with FedAVOT", edited(name))):
                folder = Path(made, f"{name}-{kind.replace(' ', '-')}")
                write(folder, name, text)
                print(f"{name}, {kind} ... ", end="", flush=True)
                config = CONFIG | {"out": str(folder)}
                try:
                    flower.run(config, folder / "flower.log", app=folder, nodes=N_CLIENTS)
                except RuntimeError as error:
                    error.add_note((folder / "flower.log").read_text()[-3000:])
                    raise
                assert list(folder.glob("final_model.*")), "the run saved no model"
                print("completed", flush=True)


def write(folder, name, text):
    """Write an app as Flower expects one."""
    folder.mkdir()
    (folder / "app.py").write_text(text, encoding="utf-8")
    for shared in SHARED:
        shutil.copy(HERE / shared, folder)
    settings = "".join(f"{key} = {value}\n" for key, value in CONFIG.items())
    (folder / "pyproject.toml").write_text(
        PROJECT.format(name=name.replace("_", "-")) + settings, encoding="utf-8"
    )


if __name__ == "__main__":
    main()
