"""Run FedAvg and FedAVOT in Flower's simulation, on the same seeds, and compare them.

python compare.py                    6 runs: two rules, seeds 0 to 2
python compare.py --rules fedavg fedavot fedavot-steady
python compare.py --redraw           only the table and the figure, from saved runs

A run that is already in the folder, with the same configuration, is not repeated.
"""

import argparse
import json
import shutil
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import report
from flower_mnist.server_app import RULES
from simulation import APP, Simulation, simulation


def main() -> None:
    """Run what is missing, and write the comparison."""
    options = _options()
    out = Path(options.out).resolve()
    wanted = list(_wanted(options, out))
    missing = [config for config in wanted if not _is_done(config)]
    if missing and not options.redraw:
        with simulation() as flower:
            for config in missing:
                _run(flower, config)
    done = [report.read(Path(config["folder"])) for config in wanted if _is_done(config)]
    if not done:
        raise SystemExit(f"{out} has no finished run; leave out --redraw")
    print(report.table(done))
    for path in report.write(done, out):
        print(f"wrote {path}")


def _run(flower: Simulation, config: Mapping[str, Any]) -> None:
    folder = Path(config["folder"])
    # FedAVOT does not overwrite a run. One that is here was interrupted, or configured otherwise.
    shutil.rmtree(folder, ignore_errors=True)
    begun = time.monotonic()
    print(f"{config['rule']}, seed {config['seed']} ... ", end="", flush=True)
    flower.run(config, folder / "flower.log")
    print(f"{time.monotonic() - begun:.0f} s", flush=True)


def _wanted(options: argparse.Namespace, out: Path) -> Iterator[dict[str, Any]]:
    """Yield the configuration of each run."""
    for rule in options.rules:
        for seed in options.seeds:
            yield {
                "rule": rule,
                "seed": seed,
                "num-server-rounds": options.rounds,
                "data-folder": options.data_folder and str(Path(options.data_folder).resolve()),
                "folder": str(out / "runs" / f"{rule}-{seed}"),
            }


def _is_done(config: Mapping[str, Any]) -> bool:
    """Return whether a run with this configuration has finished."""
    try:
        found = json.loads((Path(config["folder"]) / "results.json").read_text())
    except (OSError, json.JSONDecodeError):
        return False
    return bool(found["config"] == _defaults() | dict(config))


def _defaults() -> dict[str, Any]:
    app = tomllib.loads((APP / "pyproject.toml").read_text())
    return dict(app["tool"]["flwr"]["app"]["config"])


def _options() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES[:2]))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=_defaults()["num-server-rounds"])
    parser.add_argument("--data-folder", default="", help="folder with MNIST's four IDX files")
    parser.add_argument("--out", default="results", help="folder for the results")
    parser.add_argument("--redraw", action="store_true", help="only draw saved runs again")
    return parser.parse_args()


if __name__ == "__main__":
    main()
