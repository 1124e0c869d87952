"""A tiny study as a file, with sections to replace."""

import numpy as np
import pytest

from fedavot.errors import ConfigError
from fedavot.experiments.config import read_config
from fedavot.experiments.configured import setting_of

TINY = {
    "top": 'rules = ["full", "fedavg"]',
    "task": 'kind = "heterogeneous-regression"\nn_clients = 4\nn_features = 2\nexamples = 5',
    "availability": 'law = "uniform-cohorts"\ncohort_size = 2',
    "training": "rounds = 20\nstep = 0.05\nseeds = 2",
}
ARRAYS = 'kind = "arrays"\nfile = "mine.npz"\nloss = "squares"'
MNIST = 'kind = "mnist-softmax"\nn_clients = 4\nexamples = 6'
CHANCES = 'law = "independent"\nprobabilities = '
DRAWS = 'law = "successive-draws"\ncohort_size = 2\nrates = '
LOG = 'law = "log"\nfile = "rounds.csv"'


def write(folder, **sections):
    """Write the tiny study with some of its sections replaced; None leaves one out."""
    held = {**TINY, **sections}
    parts = [held.pop("top") or ""]
    parts += [f"[{name}]\n{text}" for name, text in held.items() if text is not None]
    path = folder / "study.toml"
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


def configured(folder, **sections):
    return setting_of(read_config(write(folder, **sections)))


def arrays(folder, **changes):
    rng = np.random.default_rng(0)
    held = {
        "features": rng.standard_normal((12, 3)),
        "targets": np.arange(12) % 2,
        "clients": np.repeat([7, 3, 5], 4),
        **changes,
    }
    np.savez(folder / "mine.npz", **{k: v for k, v in held.items() if v is not None})


def refused(folder, where, match, **sections):
    """Check that the study is refused in one line that names the file and the key."""
    path = write(folder, **sections)
    before = sorted(folder.iterdir())
    with pytest.raises(ConfigError, match=match) as caught:
        setting_of(read_config(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: {where}")
    assert "\n" not in message
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert sorted(folder.iterdir()) == before
