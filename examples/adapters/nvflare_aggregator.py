"""Weights of fedavot in NVFLARE: a `ModelAggregator` for its FedAvg controller and recipes.

NVFLARE hands every reply to `accept_model`, asks for `aggregate_model` once the round is over and
calls `reset_stats` before the next. A weight depends on who else replied, so replies are held
until then: as many models in memory as clients reply, where NVFLARE's own average holds one.
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

    A job is submitted as JSON, so everything here is a number, a name or a path; the attributes
    of the same names are what NVFLARE writes into the job.

    Parameters
    ----------
    importance : mapping of str to float
        How much each site counts, on any scale. Sites that are not named are refused.
    step : float
        Step of `fedavot.OnlineAligner`, which learns from who replies.
    alignment : str, optional
        Path, on the server, of a `fedavot.Alignment` for the sites in the order of `importance`;
        nothing is learned then, and ``step`` is not used.
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
            shares = [share / total for share in importance.values()]
            self.weigh = OnlineAligner(shares, step=step).observe

    def accept_model(self, model: FLModel) -> None:
        """Hold a reply, under the name that the FedAvg controller knows its sender by."""
        name = model.meta["client_name"]
        if name not in self.importance:
            raise ValueError(f"{name} has no importance; name it, or do not let it take part")
        self.replies[name] = model

    def aggregate_model(self) -> FLModel:
        """Average the replies, and their metrics if every one has some."""
        if not self.replies:  # an empty difference leaves the global model as it is
            return FLModel(params={}, params_type=ParamsType.DIFF)
        types = {reply.params_type for reply in self.replies.values()}
        if len(types) > 1:
            raise ValueError("some sites sent whole models and others differences; let all agree")
        if self.weigh is None:  # not before: whoever submits the job need not have the file
            self.weigh = self._loaded().weights
        numbers = {name: number for number, name in enumerate(self.importance)}
        weights = self.weigh([numbers[name] for name in self.replies]).tolist()
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
        """Forget the replies, not what was learned."""
        self.replies = {}

    def _loaded(self) -> Alignment:
        alignment = Alignment.load(self.alignment)
        if alignment.n_clients != len(self.importance):
            raise ValueError(
                f"{self.alignment} is for {alignment.n_clients} sites, but "
                f"{len(self.importance)} are named"
            )
        return alignment

    def accept(self, shareable: object, fl_ctx: object) -> bool:
        """Refuse the ScatterAndGather controller, which leaves a sender's name to the sender."""
        raise NotImplementedError("use the FedAvg controller, which names the sender of a reply")


IMPORTANCE = {"north": 5.0, "east": 3.0, "south": 2.0}
CHANCES = {"north": 0.7, "east": 0.8, "south": 1.0}  # who matters most is there least
ROUNDS = 20


def mean_weights(rules: dict[str, ModelAggregator | None], folder: str) -> dict[str, np.ndarray]:
    """Return each rule's mean weights, shape (n_sites,), read off the models of one simulated job.

    The rules take turns, and sites are there in the same rounds of each.
    """
    from nvflare_site import Site

    job = FedJob("importance", min_clients=len(CHANCES))
    # The simulator's sites ask for work every other second, and so would pass most of the time.
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
    """Print how far either rule's mean weights are from the importance."""
    # NVFLARE ships a class with the job by its module's name, and __main__ is not one.
    from nvflare_aggregator import FedAVOTAggregator

    importance = np.array(list(IMPORTANCE.values())) / sum(IMPORTANCE.values())
    rules = {"FedAvg": None, "FedAVOTAggregator": FedAVOTAggregator(IMPORTANCE)}
    with tempfile.TemporaryDirectory() as folder:
        results = mean_weights(rules, folder)
    print(f"{'importance':18} {importance}")
    for name, weights in results.items():
        gap = np.abs(weights - importance).sum() / 2
        print(f"{name:18} {weights.round(3)} gap {gap:.3f}")


if __name__ == "__main__":
    main()
