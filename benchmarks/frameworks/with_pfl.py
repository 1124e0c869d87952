"""Apple's pfl 0.6: `FederatedAveraging` on its `SimulatedBackend`, with a PyTorch or NumPy model.

`prepare` uses pfl's own `PyTorchModel`, on one thread, with the local and central SGD of PyTorch.
`prepare_with_numpy` gives pfl a model that trains by the plain NumPy loop; as pfl has no bridge to
NumPy's gradients, `FederatedAveraging.train_one_user` is overridden. In both, the federated
dataset hands out the given cohorts, a weighting strategy sets the given weights, metrics are sent
nowhere, and evaluation takes place in the first round only, which pfl cannot leave out.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightingStrategy
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDatasetBase
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.base import StatefulModel
from pfl.stats import MappedVectorStatistics

from benchmarks.federated import FederatedProblem, Model
from benchmarks.numpy_rounds import Local, local_training

DISTRIBUTION = "pfl"


def prepare(problem: FederatedProblem) -> Callable[[], Model]:
    """Return what plays every round with a PyTorch model."""
    import torch
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.model.pytorch import PyTorchModel

    from benchmarks.frameworks.torch_models import module_of

    # PyTorch's threads wait for one another in loops: on a busy machine they cost a factor of 50,
    # and products this small gain nothing from them.
    torch.set_num_threads(1)
    targets = problem.targets.astype(np.int64 if problem.n_classes else np.float32)
    users = [
        PyTorchTensorDataset(tuple(map(torch.from_numpy, arrays)), user_id=str(number))
        for number, arrays in enumerate(zip(problem.features, targets, strict=True))
    ]

    def solve() -> Model:
        module = module_of(problem)
        central = torch.optim.SGD(module.parameters(), lr=1.0)
        model = PyTorchModel(module, torch.optim.SGD, central)
        _run(problem, FederatedAveraging(), users, model)
        return module.model()

    return solve


def prepare_with_numpy(problem: FederatedProblem) -> Callable[[], Model]:
    """Return what plays every round with a NumPy model."""
    local = local_training(problem)
    arrays = zip(problem.features, problem.targets, strict=True)
    users = [Dataset(pair, user_id=number) for number, pair in enumerate(arrays)]

    def solve() -> Model:
        model = _NumPyModel(problem.start(), local)
        _run(problem, _NumPyAveraging(), users, model)
        return model.leaves

    return solve


def _run(
    problem: FederatedProblem, algorithm: FederatedAveraging, users: list[Any], model: Any
) -> None:
    cohorts = _GivenCohorts(problem, users)
    backend = SimulatedBackend(cohorts, cohorts, postprocessors=[_GivenWeights(problem)])
    algorithm.run(
        NNAlgorithmParams(
            central_num_iterations=problem.rounds,
            evaluation_frequency=problem.rounds,
            train_cohort_size=problem.members.shape[1],
            val_cohort_size=0,
        ),
        backend,
        model,
        NNTrainHyperParams(
            local_batch_size=None,
            local_num_epochs=problem.local_steps,
            local_learning_rate=problem.step,
        ),
        send_metrics_to_platform=False,
    )


class _GivenCohorts(FederatedDatasetBase):
    """Hands out the given cohorts, one after the other."""

    def __init__(self, problem: FederatedProblem, users: list[Any]) -> None:
        super().__init__()
        self._clients, self._users = chain.from_iterable(problem.members.tolist()), users

    def __next__(self):
        return self._users[next(self._clients)], 0

    def get_cohort(self, cohort_size):
        return [next(self) for _ in range(cohort_size)]


class _GivenWeights(WeightingStrategy):
    """Sets the given weights, in the order in which the cohorts are handed out."""

    def __init__(self, problem: FederatedProblem) -> None:
        self._weights = chain.from_iterable(problem.weights.tolist())

    def postprocess_one_user(self, *, stats, user_context):
        stats.reweight(next(self._weights))
        return stats, Metrics()


class _NumPyModel(StatefulModel):
    """A tuple of arrays that trains by the plain NumPy loop."""

    def __init__(self, leaves: Model, local: Local) -> None:
        self.leaves, self._local = leaves, local

    def train(self, client: int) -> None:
        self.leaves = self._local(client, self.leaves)

    def evaluate(self, dataset, name_formatting_fn, eval_params=None):
        return Metrics()

    def get_parameters(self, placeholders=None):
        return _statistics(self.leaves)

    def set_parameters(self, w):
        self.leaves = tuple(w.values())

    def get_model_difference(self, other_parameters, clone=False):
        pairs = zip(self.leaves, other_parameters.values(), strict=True)
        return _statistics(tuple(mine - other for mine, other in pairs))

    def apply_model_update(self, statistics):
        pairs = zip(self.leaves, statistics.values(), strict=True)
        self.leaves = tuple(leaf + update for leaf, update in pairs)
        return self, Metrics()

    def save(self, dir_path):
        raise AssertionError("the benchmark only trains")  # the framework asks for the method

    load = save


class _NumPyAveraging(FederatedAveraging):
    """Federated averaging whose users train by the model's own method."""

    def train_one_user(self, initial_model_state, model, user_dataset, central_context):
        model.train(user_dataset.user_id)
        return model.get_model_difference(initial_model_state), Metrics()


def _statistics(leaves: Model) -> MappedVectorStatistics:
    return MappedVectorStatistics({str(place): leaf for place, leaf in enumerate(leaves)})
