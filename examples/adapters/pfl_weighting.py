"""Weights of fedavot in Apple's pfl: a `WeightingStrategy`, in product form.

A weighting strategy computes the weight of one user without knowing the others. That is sufficient:
in every cohort the weights are proportional to exp(xᵢ), so each user gets the weight exp(xᵢ), and
pfl divides by the sum when it averages. The same object is a postprocessor on the server, where it
learns from the users of each round.
"""

import math
from collections import Counter

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
    """Weight each user by the exponential of its potential.

    Parameters
    ----------
    aligner : OnlineAligner or Alignment
        Source of the potentials, whose clients have the users' ids as names. All clients must have
        positive importance; an alignment must have one level and the objective "entropy". Other
        weights have no product form.
    """

    def __init__(self, aligner: OnlineAligner | Alignment) -> None:
        if isinstance(aligner, Alignment):
            product = aligner.objective == "entropy" and not aligner.levels.any()
        else:
            product = bool((aligner.importance > 0).all())
        if not product:
            raise ValueError("these weights have no product form; see docs/adapters.md, limits")
        if aligner.clients is None:
            raise ValueError("the aligner's clients have no names; pass clients=[...] to it")
        self.aligner = aligner
        self._indices = {user: index for index, user in enumerate(aligner.clients)}
        self._weighted: Counter[int] = Counter()
        self._compute_odds()

    def postprocess_one_user(
        self, *, stats: WeightedStatistics, user_context: UserContext
    ) -> tuple[WeightedStatistics, Metrics]:
        """Apply the weight of one user, which does not depend on the other users."""
        index = self._indices.get(user_context.user_id)
        if index is None:
            raise ValueError(f"user {user_context.user_id!r} has no importance")
        self._weighted[index] += 1  # pfl may draw one user twice in a round
        stats.reweight(float(self._odds[index]))
        return stats, Metrics()

    def postprocess_server(
        self,
        *,
        stats: WeightedStatistics,
        central_context: CentralContext,
        aggregate_metrics: Metrics,
    ) -> tuple[WeightedStatistics, Metrics]:
        """Learn from the users of the round."""
        cohort, times = np.array(list(self._weighted)), np.array(list(self._weighted.values()))
        sums = self._odds[cohort] * times
        if not math.isclose(float(stats.weight), float(sums.sum()), rel_tol=1e-5):
            raise RuntimeError(
                f"the total weight of the round is {stats.weight}, but {sums.sum()} was given "
                "here; use no other postprocessor that weights, and simulate in one process"
            )
        if isinstance(self.aligner, OnlineAligner):
            self.aligner.observe(cohort, sums / sums.sum())
            self._compute_odds()
        self._weighted.clear()
        return stats, Metrics()

    def _compute_odds(self) -> None:
        online = isinstance(self.aligner, OnlineAligner)
        potentials = self.aligner.effective_potentials if online else self.aligner.potentials
        self._odds = np.exp(potentials - potentials.max())


USERS = ("north", "east", "south", "west")
IMPORTANCE = np.array([0.4, 0.3, 0.2, 0.1])
CHANCES = np.array([0.15, 0.2, 0.25, 0.4])  # the most important user is drawn least often
COHORT_SIZE, ROUNDS = 4, 400


class Sum(StatefulModel):
    """A model that is the sum of the updates."""

    def __init__(self) -> None:
        self.total = np.zeros(len(USERS))

    def get_parameters(self, placeholders: object = None) -> MappedVectorStatistics:
        """Return a copy."""
        return MappedVectorStatistics({"total": self.total.copy()})

    def set_parameters(self, w: MappedVectorStatistics) -> None:
        """Replace the sum."""
        self.total = w["total"]

    def apply_model_update(self, statistics: MappedVectorStatistics) -> tuple["Sum", Metrics]:
        """Add the average update of a round."""
        self.total = self.total + statistics["total"]
        return self, Metrics()

    def evaluate(self, *_: object) -> Metrics:
        """Return no metrics."""
        return Metrics()

    def get_model_difference(self, *_: object) -> MappedVectorStatistics:
        """Raise: pfl requires this method and the next two, but does not call them here."""
        raise NotImplementedError("pfl requires this method, and does not call it here")

    save = load = get_model_difference


class UnitUpdates(FederatedAveraging):
    """Federated averaging in which a user's update is one in its own coordinate, else zero.

    The average of a round is then the weights of that round, and the model is their sum.
    """

    def train_one_user(
        self, initial_model_state: object, model: Sum, user_dataset: Dataset, _: object
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """Return one in the user's own coordinate."""
        unit = np.array([float(user == user_dataset.user_id) for user in USERS])
        return MappedVectorStatistics({"total": unit}), Metrics()


def mean_weights(weighting: WeightingStrategy) -> np.ndarray:
    """Return the mean weights of a run, shape (n_users,), from the final model."""
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
    """Print the mean weights of both weightings and their gaps to the importance."""
    print(f"{'importance':18} {IMPORTANCE}")
    aligner = OnlineAligner(IMPORTANCE, softness=0, around="equal", step=1.0, clients=USERS)
    for weighting in (WeightByUser(), FedAVOTWeighting(aligner)):
        weights = mean_weights(weighting)
        gap = np.abs(weights - IMPORTANCE).sum() / 2
        print(f"{type(weighting).__name__:18} {weights.round(3)} gap {gap:.1%}")


if __name__ == "__main__":
    main()
