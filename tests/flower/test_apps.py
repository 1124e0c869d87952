"""Apps like Flower's own examples, as written and with the two edits that the documents ask for."""

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from grid import LocalGrid, Node

sys.path.insert(0, str(Path(__file__).parent / "apps"))

from edits import APPS, CONFIG, edited, source

N_CLIENTS = 4
ROUNDING = 1e-6  # float32 averages, whose weights are summed in another order
QUANTISATION = 4e-5
"""SecAgg+ rounds to steps of 4e-6, one for each of four clients in each of three rounds."""


def loaded(name, text):
    module = types.ModuleType(name)
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module


def played(app, out):
    """Run an app in one process, and return the arrays of its final model."""
    out.mkdir()
    config = CONFIG | {"out": str(out)}
    nodes = {
        100 + i: Node(app.client_app, {"partition-id": i, "num-partitions": N_CLIENTS})
        for i in range(N_CLIENTS)
    }
    grid = LocalGrid(nodes, run_config=config)
    app.server_app(grid, Context(1, 1, {}, RecordDict(), config))
    return final(out)


def final(out):
    if (out / "final_model.pt").exists():
        import torch

        saved = torch.load(out / "final_model.pt")
        return {name: values.numpy() for name, values in saved.items()}
    with np.load(out / "final_model.npz") as archive:
        return dict(archive)


@pytest.mark.parametrize("name", APPS)
def test_an_app_with_the_two_edits_trains_the_same_model_if_everybody_is_there(name, tmp_path):
    plain = played(loaded(name, source(name)), tmp_path / "plain")
    ours = played(loaded(name, edited(name)), tmp_path / "ours")
    allowed = QUANTISATION if name == "secure_aggregation" else ROUNDING
    assert plain.keys() == ours.keys()
    # Flower makes floats of integer arrays, such as counters; ours stay integers.
    for key in (key for key, values in ours.items() if values.dtype.kind == "f"):
        np.testing.assert_allclose(ours[key], plain[key], rtol=allowed, atol=allowed)


def test_an_app_with_memory_trains_the_same_model_if_everybody_is_there(tmp_path):
    plain = played(loaded("plain", source("quickstart_numpy")), tmp_path / "plain")
    options = f"memory=True, folder={str(tmp_path / 'run')!r}"
    ours = played(loaded("ours", edited("quickstart_numpy", options)), tmp_path / "ours")
    for key, values in ours.items():
        np.testing.assert_allclose(values, plain[key], rtol=ROUNDING, atol=ROUNDING)


def test_a_strategy_with_its_own_loop_tracks_and_saves_what_it_did_before(tmp_path):
    for kind, text in (("plain", source), ("ours", edited)):
        played(loaded(kind, text("advanced_pytorch")), tmp_path / kind)
    plain, ours = (
        [json.loads(line) for line in (tmp_path / kind / "tracked.jsonl").read_text().splitlines()]
        for kind in ("plain", "ours")
    )
    assert [entry.get("lr") for entry in plain[::3]] == pytest.approx([0.1, 0.05, 0.05])
    assert len(plain) == len(ours)
    for before, after in zip(plain, ours, strict=True):
        assert after == pytest.approx(before, rel=1e-5)
    names = [
        sorted(path.name for path in (tmp_path / kind).iterdir()) for kind in ("plain", "ours")
    ]
    assert names[0] == names[1]


def test_mods_that_read_the_round_see_every_message(tmp_path):
    played(loaded("mods", edited("custom_mods")), tmp_path / "out")
    for client in range(N_CLIENTS):
        lines = (tmp_path / "out" / f"events-{client}.jsonl").read_text().splitlines()
        assert [json.loads(line)["round"] for line in lines] == [1, 1, 2, 2, 3, 3]
