"""The designs of the study, and the world of one of them: clients, task and test images."""

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from studies.deep.availability import PUBLISHED, SETTINGS, Clients, cohorts, inclusion
from studies.deep.contenders import NEEDS_LAW, SEES_ALL, Given, base, rule_for
from studies.deep.network import Network

from fedavot.training import Problem, Task, cosine
from fedavot.training.partition import dirichlet
from fedavot.training.schedule import schedule


@dataclass(frozen=True)
class Design:
    """Everything that is fixed before a rule and a step are chosen."""

    side: int
    channels: tuple[int, ...]
    settings: tuple[str, ...] = tuple(SETTINGS)
    examples: int = 400
    concentration: float = 0.3
    n_clients: int = 100
    local_steps: int = 8
    batch_size: int = 20
    cohort_size: int | None = 10
    falls: str = "cosine"
    """How steps fall: ``cosine``, to zero at the end, or ``root``, as 1/√(1 + t/10)."""
    steps: tuple[float, ...] = (0.1, 0.2, 0.4, 0.8)
    """The grid of local steps; one step is not tuned."""
    importances: tuple[str, ...] = ("uniform", "skewed")
    together: int = 42
    """Lanes in one program on an accelerator."""
    short: int = 400
    long: int = 2_000

    def step_sizes(self, step: float, rounds: int) -> NDArray[np.float32]:
        """Return the local step of every round."""
        if self.falls == "cosine":
            sizes = cosine(step)(rounds, self.local_steps)
        else:
            sizes = step / np.sqrt(1 + np.arange(rounds) / 10)
        return np.asarray(sizes, np.float32)


DESIGNS = {
    "pixels8": Design(8, (16, 32)),
    "pixels16": Design(16, (16, 32, 64)),
    "grey28": Design(28, (16, 32)),
    "fedawe": Design(
        side=32,
        channels=(32, 64, 64),
        settings=tuple(PUBLISHED),
        examples=500,
        concentration=0.1,
        local_steps=10,
        batch_size=128,
        cohort_size=None,
        falls="root",
        steps=(0.05,),
        importances=("uniform",),
        together=4,
        short=2_000,
    ),
}


class Lane(NamedTuple):
    """One run of a rule: where, on which seed, with which steps."""

    setting: str
    importance: str
    seed: int
    step: float
    server: float | None = None


class World:
    """A design with its data on the device."""

    def __init__(self, name: str, design: Design, path: Path) -> None:
        self.design = design
        self.mark = hashlib.sha256(repr(design).encode() + path.read_bytes()).hexdigest()[:8]
        self.name = name
        with np.load(path) as held:
            arrays = dict(held)
        pixels, labels = arrays["train_pixels"], arrays["train_labels"].astype(np.int32)
        if pixels.shape[1] != design.side:
            raise SystemExit(
                f"{path} has images of {pixels.shape[1]} pixels, and design {name} takes "
                f"{design.side}; prepare them with --side {design.side}"
            )
        parts = np.stack(
            dirichlet(
                labels,
                design.n_clients,
                concentration=design.concentration,
                examples_per_client=design.examples,
                rng=np.random.default_rng(0),
            )
        )
        # In random order, so that the first images of a client are a fair sample of its own.
        parts = np.random.default_rng(1).permuted(parts, axis=1)
        classes = int(labels.max()) + 1
        mixes = np.stack([np.bincount(labels[part], minlength=classes) for part in parts])
        traces = None
        if "phones" in arrays:
            rounds = int(arrays["phone_rounds"])
            traces = np.unpackbits(arrays["phones"], axis=0, count=rounds).astype(np.bool_)
        self.clients = Clients(mixes / design.examples, traces)
        mean = pixels.mean(axis=(0, 1, 2), dtype=np.float64)
        spread = pixels.std(axis=(0, 1, 2), dtype=np.float64)

        def standardised(values: Any) -> NDArray[np.float32]:
            return np.asarray((values - mean) / spread, np.float32)

        self.network = Network(design.side, pixels.shape[3], design.channels, classes)
        data = standardised(pixels[parts.ravel()]).reshape(*parts.shape, *pixels.shape[1:])
        self.task = Task(name, (data, labels[parts]), self.network, self.network.init)
        self.data = jax.tree.map(jnp.asarray, self.task.data)
        test = standardised(arrays["test_pixels"]), arrays["test_labels"].astype(np.int32)
        order = np.random.default_rng(2).permutation(test[1].size)
        self.test = jax.tree.map(lambda leaf: jnp.asarray(leaf[order]), test)

    @functools.cache  # noqa: B019 - there is one world, and it lives to the end
    def given(self, setting: str, importance: str, rounds: int, law: bool) -> Given:
        """Return what a rule may know in a setting."""
        design = self.design
        size = design.cohort_size
        chances = inclusion(setting, self.clients, size, rounds) if law else None
        sizes = np.full(design.n_clients, design.examples)
        return Given(self.clients.importance(importance), sizes, chances, size)

    def rule(self, name: str, lane: Lane, rounds: int) -> Any:
        """Return a lane's rule."""
        law = base(name) in NEEDS_LAW
        given = self.given(lane.setting, lane.importance, rounds, law)
        return rule_for(name, given, lane.server)

    def problem(self, name: str, lane: Lane) -> Problem:
        """Return a lane's problem, as `fedavot.training.train` takes it."""
        size = None if base(name) in SEES_ALL else self.design.cohort_size
        draw = cohorts(lane.setting, self.clients, size)
        return Problem(self.task, self.clients.importance(lane.importance), draw)

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def asked(
        self, name: str, setting: str, importance: str, seed: int, rounds: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the clients asked in every round and their weights, shape (rounds, places)."""
        lane = Lane(setting, importance, seed, 0.0)
        plan = schedule(self.problem(name, lane), self.rule(name, lane, rounds), [seed], rounds)
        return plan.members[0], plan.weights[0].astype(np.float32)
