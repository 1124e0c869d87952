"""Weights of fedavot in APPFL: an aggregator for its synchronous scheduler.

APPFL's `FedAvgAggregator` can average by the sample sizes that clients announce. The adapter
replaces those sizes by the weights of the round, and leaves the averaging to APPFL.
"""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from appfl.algorithm.aggregator import FedAvgAggregator
from appfl.algorithm.scheduler import SyncScheduler
from appfl.vsim import ClientProfile, SyncSimDriver
from omegaconf import DictConfig, OmegaConf

from fedavot import Alignment, OnlineAligner

State = Mapping[str, torch.Tensor]


class FedAVOTAggregator(FedAvgAggregator):
    """Average the models of a round with weights whose mean is the importance.

    Parameters
    ----------
    model : torch.nn.Module, optional
        The initial model. APPFL passes none to an aggregator that it loads from
        ``aggregator_path``: set ``server.aggregator.model = server.model`` before clients connect.
    aggregator_configs : DictConfig
        ``importance``, a mapping from client id to the importance of the client, on any scale;
        ``step`` of `fedavot.OnlineAligner`, 2 by default; or ``alignment``, the path of a saved
        `fedavot.Alignment` whose clients have these ids, with which nothing is learned. The options
        of `FedAvgAggregator` apply too, except for ``client_weights_mode``.
    logger : object, optional
        APPFL's logger.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        aggregator_configs: DictConfig | None = None,
        logger: Any = None,
    ) -> None:
        configs = OmegaConf.create({}) if aggregator_configs is None else aggregator_configs
        if configs.get("use_secure_agg", False):
            raise ValueError("masks only cancel in an unweighted sum; set use_secure_agg to false")
        super().__init__(model, configs, logger)
        self.client_weights_mode = "sample_size"
        self.client_sample_size: dict[str, float] = {}
        self._importance = {str(client): amount for client, amount in configs.importance.items()}
        if configs.get("alignment") is None:
            total = sum(self._importance.values())
            shares = {client: amount / total for client, amount in self._importance.items()}
            step = configs.get("step", 2.0)
            aligner = OnlineAligner(shares, softness=0, around="equal", step=step)
            self.weigh = aligner.observe
        else:
            loaded = Alignment.load(configs.alignment)
            if set(loaded.clients or ()) != set(self._importance):
                raise ValueError(
                    f"the clients of {configs.alignment} are {loaded.clients}; they must be those "
                    f"of importance, {list(self._importance)}"
                )
            self.weigh = loaded.weights

    def set_client_sample_size(self, client_id: str | int, sample_size: int) -> None:
        """Ignore the sample size that a client announces; weights replace it."""

    def aggregate(self, local_models: Mapping[str | int, State], **kwargs: Any) -> State:
        """Average models by weight; if they come in chunks, with the weights of the first."""
        clients = [str(client) for client in local_models]
        unknown = [client for client in clients if client not in self._importance]
        if unknown:
            raise ValueError(f"clients {unknown} have no importance; add them to the configuration")
        chunks = kwargs.get("_chunk_idx", {})
        if not any(chunks.get(client, 0) for client in local_models):
            weights = self.weigh(clients)
            self.client_sample_size = dict(zip(local_models, weights.tolist(), strict=True))
        elif set(self.client_sample_size) != set(local_models):
            raise ValueError("a later chunk is not from the same clients as the first")
        return super().aggregate(local_models, **kwargs)


IMPORTANCE = {"north": 4.0, "east": 3.0, "south": 2.0, "west": 1.0}
SLOWNESS = {
    "north": 4.0,
    "east": 3.0,
    "south": 2.0,
    "west": 1.0,
}  # the most important client is the slowest
ROUNDS, FASTEST = 400, 3


class Client:
    """A client that adds one to its own coordinate, so that the model sums the weights."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._unit = torch.tensor([float(name == other) for other in IMPORTANCE])

    def get_id(self) -> str:
        """Return the name."""
        return self._name

    def load_parameters(self, parameters: State) -> None:
        """Start from the global model."""
        self._total = parameters["total"]

    def train(self) -> None:
        """Add one to the client's own coordinate."""
        self._total = self._total + self._unit

    def get_parameters(self) -> tuple[State, dict[str, int]]:
        """Return the model and the number of local steps."""
        return {"total": self._total}, {"current_local_steps": 1}


class Server:
    """The part of APPFL's server agent that its simulation needs."""

    def __init__(self, aggregator: FedAvgAggregator) -> None:
        configs = OmegaConf.create({"num_clients": len(IMPORTANCE), "optimize_memory": False})
        self.scheduler = SyncScheduler(configs, aggregator, logger=None)
        self.get_parameters = self.scheduler.get_parameters

    def global_update(
        self, client_id: str, local_model: State, blocking: bool, **meta: Any
    ) -> None:
        """Pass a client's model to the scheduler, which aggregates at the end of the round."""
        self.scheduler.schedule(client_id, local_model, **meta)

    def training_finished(self) -> bool:
        """Return False: the driver counts the rounds."""
        return False


class Device(ClientProfile):
    """A device whose computing time is random."""

    def __init__(self, slowness: float, rng: np.random.Generator) -> None:
        super().__init__(compute_factor=slowness)
        self._rng = rng

    def compute_time(self, *args: Any, **kwargs: Any) -> float:
        """Return the time of the profile, multiplied by an exponential draw."""
        return super().compute_time(*args, **kwargs) * self._rng.exponential()


def mean_weights(kind: type[FedAvgAggregator], **configs: Any) -> np.ndarray:
    """Return the mean weights of a run, shape (n_clients,), from the final model."""
    model = torch.nn.ParameterDict({"total": torch.zeros(len(IMPORTANCE))})
    # With optimize_memory, APPFL collects garbage several times per round, which is slow.
    server = Server(kind(model, OmegaConf.create({"optimize_memory": False, **configs})))
    rng = np.random.default_rng(0)
    driver = SyncSimDriver(
        server,
        [Client(name) for name in IMPORTANCE],
        {name: Device(slowness, rng) for name, slowness in SLOWNESS.items()},
        participants_per_round=len(IMPORTANCE),
        logger=logging.getLogger("quiet"),
        base_step_time=1.0,
        min_responses=FASTEST,
        target_rounds=ROUNDS,
    )
    driver.run()
    return server.get_parameters(serial_run=True)["total"].detach().numpy() / ROUNDS


def main() -> None:
    """Print the mean weights of both aggregators and their gaps to the importance."""
    importance = np.array(list(IMPORTANCE.values())) / sum(IMPORTANCE.values())
    print(f"{'importance':18} {importance}")
    for kind, configs in (
        (FedAvgAggregator, {}),
        (FedAVOTAggregator, {"importance": IMPORTANCE, "step": 1.0}),
    ):
        weights = mean_weights(kind, **configs)
        gap = np.abs(weights - importance).sum() / 2
        print(f"{kind.__name__:18} {weights.round(3)} gap {gap:.1%}")


if __name__ == "__main__":
    main()
