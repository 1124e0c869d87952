"""Weights of fedavot in NVFLARE: a `ModelAggregator` for its FedAvg controller and recipes.

NVFLARE passes every reply to `accept_model`, calls `aggregate_model` at the end of the round and
`reset_stats` before the next. A weight depends on which other clients replied, so replies are kept
until the end of the round: one model in memory per reply, where NVFLARE's own average keeps one.
"""

import tempfile
from pathlib import Path

import numpy as np
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.aggregators.weighted_aggregation_helper import (
    WeightedAggregationHelper,
    filter_aggregatable_metrics,
)
from nvflare.app_common.np.np_model_persistor import NPModelPersistor
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.job_config.api import FedJob

from fedavot import Alignment, OnlineAligner


class FedAVOTAggregator(ModelAggregator):
    """Average the replies of a round with weights whose mean is the importance.

    A job is submitted as JSON, so all parameters are numbers, names or paths; NVFLARE writes the
    attributes of the same names into the job.

    Parameters
    ----------
    importance : mapping of str to float
        Importance of each site, on any scale. Sites without importance are refused.
    step : float
        Step size of `fedavot.OnlineAligner`, which learns from who replies.
    alignment : str, optional
        Path, on the server, of a saved `fedavot.Alignment` whose clients have the names of the
        sites. Nothing is learned then, and ``step`` is not used.
    """

    def __init__(
        self, importance: dict[str, float], step: float = 2.0, alignment: str | None = None
    ) -> None:
        super().__init__()
        self.importance, self.step, self.alignment = importance, step, alignment
        self.replies: dict[str, FLModel] = {}
        self.weigh = None
        if alignment is None:
            total = sum(importance.values())
            shares = {name: amount / total for name, amount in importance.items()}
            aligner = OnlineAligner(shares, softness=0, around="equal", step=step)
            self.weigh = aligner.observe

    def accept_model(self, model: FLModel) -> None:
        """Keep a reply under the name that the FedAvg controller gives its sender."""
        name = model.meta["client_name"]
        if name not in self.importance:
            raise ValueError(f"site {name!r} has no importance; add it to importance, or remove it")
        self.replies[name] = model

    def aggregate_model(self) -> FLModel:
        """Average the replies, and their metrics if every reply has some."""
        if not self.replies:  # an empty difference leaves the global model unchanged
            return FLModel(params={}, params_type=ParamsType.DIFF)
        types = {reply.params_type for reply in self.replies.values()}
        if len(types) > 1:
            raise ValueError(
                "some sites sent models and others differences; all must send the same kind"
            )
        if self.weigh is None:  # not earlier, because only the server has the file
            self.weigh = self._loaded().weights
        weights = self.weigh(list(self.replies)).tolist()
        self.info(f"weights {dict(zip(self.replies, weights, strict=True))}")
        params, metrics = WeightedAggregationHelper(), WeightedAggregationHelper()
        for (name, reply), weight in zip(self.replies.items(), weights, strict=True):
            if weight > 0:
                params.add(reply.params, weight, name, reply.current_round)
                measured = filter_aggregatable_metrics(reply.metrics)
                metrics.add(measured, weight, name, reply.current_round)
        complete = all(reply.metrics for reply in self.replies.values())
        return FLModel(
            params=params.get_result(),
            params_type=types.pop(),
            metrics=(metrics.get_result() or None) if complete else None,
        )

    def reset_stats(self) -> None:
        """Discard the replies, but not what was learned."""
        self.replies = {}

    def _loaded(self) -> Alignment:
        alignment = Alignment.load(self.alignment)
        if set(alignment.clients or ()) != set(self.importance):
            raise ValueError(
                f"the clients of {self.alignment} are {alignment.clients}; they must be the sites "
                f"of importance, {list(self.importance)}"
            )
        return alignment

    def accept(self, shareable: object, fl_ctx: object) -> bool:
        """Refuse the ScatterAndGather controller, with which senders choose their own names."""
        raise NotImplementedError("use the FedAvg controller, which sets the sender of a reply")


IMPORTANCE = {"north": 5.0, "east": 3.0, "south": 2.0}
CHANCES = {
    "north": 0.7,
    "east": 0.8,
    "south": 1.0,
}  # the most important site is available least often
ROUNDS = 20


def mean_weights(rules: dict[str, ModelAggregator | None], folder: str) -> dict[str, np.ndarray]:
    """Return the mean weights of each rule, shape (n_sites,), from the models of a simulated job.

    The rules run one after the other, with the same sites available in each round.
    """
    from nvflare_site import Site

    job = FedJob("importance", min_clients=len(CHANCES))
    # By default the sites of the simulator ask for work only every two seconds.
    job.to_server({"server": {"task_request_interval": 0.2}})
    for name, aggregator in rules.items():
        start = NPModelPersistor(model=[0.0] * len(CHANCES), model_name=f"{name}.npy")
        job.to_server(start, id=name)
        controller = FedAvg(
            num_clients=len(CHANCES),
            num_rounds=ROUNDS,
            persistor_id=name,
            aggregator=aggregator,
            task_check_period=0.02,
        )
        job.to_server(controller)
    job.to_clients(Site(CHANCES))
    job.simulator_run(folder, clients=list(CHANCES), threads=len(CHANCES), log_config="ERROR")
    models = Path(folder) / "server" / "simulate_job" / "models"
    return {name: np.load(models / f"{name}.npy") / ROUNDS for name in rules}


def main() -> None:
    """Print the mean weights of both rules and their gaps to the importance."""
    # NVFLARE ships a class with the job by the name of its module, which must not be __main__.
    from nvflare_aggregator import FedAVOTAggregator

    importance = np.array(list(IMPORTANCE.values())) / sum(IMPORTANCE.values())
    rules = {"FedAvg": None, "FedAVOTAggregator": FedAVOTAggregator(IMPORTANCE)}
    with tempfile.TemporaryDirectory() as folder:
        results = mean_weights(rules, folder)
    print(f"{'importance':18} {importance}")
    for name, weights in results.items():
        gap = np.abs(weights - importance).sum() / 2
        print(f"{name:18} {weights.round(3)} gap {gap:.1%}")


if __name__ == "__main__":
    main()
