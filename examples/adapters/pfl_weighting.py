"""Weights of fedavot in Apple's pfl: a `WeightingStrategy`, in product form.

A weighting strategy is asked for the weight of one user without being told of the others. That is
enough: in every cohort the weights are in proportion to exp(xᵢ), so each user is weighed exp(xᵢ),
and pfl divides by the sum when it averages. The same object is a postprocessor on the server, and
there learns, after each round, from who was weighed.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser, WeightingStrategy
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.context import CentralContext, UserContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.base import StatefulModel
from pfl.stats import MappedVectorStatistics, WeightedStatistics

from fedavot import Alignment, OnlineAligner


class FedAVOTWeighting(WeightingStrategy):
    """Weigh each user by the exponential of its potential.

    Parameters
    ----------
    users : sequence of str
        The users' ids, in the order of the importance the aligner was given.
    aligner : OnlineAligner or Alignment
        Where the potentials come from. An alignment must give all clients positive importance,
        and have one level and the entropy objective: other weights have no product form.
    """

    def __init__(self, users: Sequence[str], aligner: OnlineAligner | Alignment) -> None:
        if isinstance(aligner, Alignment):
            product = aligner.objective == "entropy" and not aligner.levels.any()
        else:
            product = bool((aligner.importance > 0).all())
        if not product:
            raise ValueError("these weights have no product form: see the adapters' page, limits")
        if len(users) != aligner.n_clients:
            raise ValueError(f"{len(users)} users, but potentials of {aligner.n_clients} clients")
        self.aligner = aligner
        self._numbers = {user: number for number, user in enumerate(users)}
        self._weighed: Counter[int] = Counter()
        self._compute_odds()

    def postprocess_one_user(
        self, *, stats: WeightedStatistics, user_context: UserContext
    ) -> tuple[WeightedStatistics, Metrics]:
        """Give one user its weight, which needs no other user's."""
        number = self._numbers.get(user_context.user_id)
        if number is None:
            raise ValueError(f"user {user_context.user_id!r} has no importance")
        self._weighed[number] += 1  # pfl may draw one user twice in a round
        stats.reweight(float(self._odds[number]))
        return stats, Metrics()

    def postprocess_server(
        self,
        *,
        stats: WeightedStatistics,
        central_context: CentralContext,
        aggregate_metrics: Metrics,
    ) -> tuple[WeightedStatistics, Metrics]:
        """Learn from who was weighed in the round."""
        cohort, times = np.array(list(self._weighed)), np.array(list(self._weighed.values()))
        sums = self._odds[cohort] * times
        if not math.isclose(float(stats.weight), float(sums.sum()), rel_tol=1e-5):
            raise RuntimeError(
                f"the round weighs {stats.weight}, but {sums.sum()} was given here; let no other "
                "postprocessor weigh after this one, and simulate in one process"
            )
        if isinstance(self.aligner, OnlineAligner):
            self.aligner.observe(cohort, sums / sums.sum())
            self._compute_odds()
        self._weighed.clear()
        return stats, Metrics()

    def _compute_odds(self) -> None:
        online = isinstance(self.aligner, OnlineAligner)
        potentials = self.aligner.effective_potentials if online else self.aligner.potentials
        self._odds = np.exp(potentials - potentials.max())


USERS = ("north", "east", "south", "west")
IMPORTANCE = np.array([0.4, 0.3, 0.2, 0.1])
CHANCES = np.array([0.15, 0.2, 0.25, 0.4])  # who matters most is drawn least
COHORT_SIZE, ROUNDS = 4, 400


class Sum(StatefulModel):
    """A model that is the sum of the updates."""

    def __init__(self) -> None:
        self.total = np.zeros(len(USERS))

    def get_parameters(self, placeholders: object = None) -> MappedVectorStatistics:
        """Return a copy."""
        return MappedVectorStatistics({"total": self.total.copy()})

    def set_parameters(self, w: MappedVectorStatistics) -> None:
        """Take over."""
        self.total = w["total"]

    def apply_model_update(self, statistics: MappedVectorStatistics) -> tuple["Sum", Metrics]:
        """Add the average update of a round."""
        self.total = self.total + statistics["total"]
        return self, Metrics()

    def evaluate(self, *_: object) -> Metrics:
        """There is nothing to evaluate."""
        return Metrics()

    def get_model_difference(self, *_: object) -> MappedVectorStatistics:
        """Raise: pfl asks for this method, as for the next two, but nobody calls it here."""
        raise NotImplementedError

    save = load = get_model_difference


class UnitUpdates(FederatedAveraging):
    """Federated averaging where each user's update is one in its own coordinate, else zero.

    So the average of a round is the weights given in it, and the model is the sum of them.
    """

    def train_one_user(
        self, initial_model_state: object, model: Sum, user_dataset: Dataset, _: object
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """Step along the user's own coordinate."""
        unit = np.array([float(user == user_dataset.user_id) for user in USERS])
        return MappedVectorStatistics({"total": unit}), Metrics()


def mean_weights(weighting: WeightingStrategy) -> np.ndarray:
    """Return the mean weights of a run, shape (n_users,), read off the model."""
    rng = np.random.default_rng(0)
    users = FederatedDataset(
        make_dataset_fn=lambda user: Dataset((np.zeros(1),), user_id=user),
        user_sampler=lambda: USERS[rng.choice(len(USERS), p=CHANCES)],
    )
    backend = SimulatedBackend(users, users, postprocessors=[weighting])
    rounds = NNAlgorithmParams(
        central_num_iterations=ROUNDS,
        evaluation_frequency=ROUNDS,
        train_cohort_size=COHORT_SIZE,
        val_cohort_size=0,
    )
    local = NNTrainHyperParams(local_batch_size=None, local_num_epochs=1, local_learning_rate=1.0)
    model = UnitUpdates().run(rounds, backend, Sum(), local, send_metrics_to_platform=False)
    return model.total / ROUNDS


def main() -> None:
    """Print how far either weighting's mean weights are from the importance."""
    print(f"{'importance':18} {IMPORTANCE}")
    aligner = OnlineAligner(IMPORTANCE, step=1.0)
    for weighting in (WeightByUser(), FedAVOTWeighting(USERS, aligner)):
        weights = mean_weights(weighting)
        gap = np.abs(weights - IMPORTANCE).sum() / 2
        print(f"{type(weighting).__name__:18} {weights.round(3)} gap {gap:.3f}")


if __name__ == "__main__":
    main()
