"""Flower 1.41 in one process: the strategy `FedAvg`, its serialisation, and NumPy clients.

`prepare` runs the server's own loop, ``Server.fit``, with client proxies that call the client
instead of the network. `prepare_without_server` calls strategy and clients in a bare loop: no
threads, no log, no history. Cohorts are given by overriding `FedAvg.configure_fit`, and weights go
out with the instructions and come back as numbers of examples. Local training is that of the plain
NumPy loop. Evaluation and the log are switched off.
"""

import logging
from collections.abc import Callable

from flwr.client import NumPyClient
from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAvg

from benchmarks.federated import FederatedProblem, Model
from benchmarks.numpy_rounds import Local, local_training

DISTRIBUTION = "flwr"


def prepare(problem: FederatedProblem) -> Callable[[], Model]:
    """Return what plays every round by the server's loop."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    proxies = _proxies(problem)

    def solve() -> Model:
        strategy = _GivenCohorts(problem, proxies)
        server = Server(client_manager=SimpleClientManager(), strategy=strategy)
        server.set_max_workers(problem.members.shape[1])
        server.fit(problem.rounds, timeout=None)
        return tuple(parameters_to_ndarrays(server.parameters))

    return solve


def prepare_without_server(problem: FederatedProblem) -> Callable[[], Model]:
    """Return what plays every round by the strategy and the clients alone."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    proxies = _proxies(problem)

    def solve() -> Model:
        strategy, manager = _GivenCohorts(problem, proxies), SimpleClientManager()
        parameters = strategy.initialize_parameters(manager)
        for number in range(1, problem.rounds + 1):
            instructions = strategy.configure_fit(number, parameters, manager)
            results = [(proxy, proxy.fit(ins, None, None)) for proxy, ins in instructions]
            parameters, _ = strategy.aggregate_fit(number, results, [])
        return tuple(parameters_to_ndarrays(parameters))

    return solve


class _GivenCohorts(FedAvg):
    """FedAvg that asks the given cohorts, and tells them their weights."""

    def __init__(self, problem: FederatedProblem, proxies: list[ClientProxy]) -> None:
        start = ndarrays_to_parameters(list(problem.start()))
        super().__init__(fraction_evaluate=0.0, initial_parameters=start)
        self._members, self._shares = problem.members.tolist(), problem.shares.tolist()
        self._proxies = proxies

    def configure_fit(self, server_round, parameters, client_manager):
        rows = self._members[server_round - 1], self._shares[server_round - 1]
        return [
            (self._proxies[client], FitIns(parameters, {"share": share}))
            for client, share in zip(*rows, strict=True)
        ]


class _Client(NumPyClient):
    """A client that trains on its own examples."""

    def __init__(self, number: int, local: Local) -> None:
        self._number, self._local = number, local

    def fit(self, parameters, config):
        return list(self._local(self._number, tuple(parameters))), config["share"], {}


class _Proxy(ClientProxy):
    """Calls its client directly."""

    def __init__(self, number: int, local: Local) -> None:
        super().__init__(str(number))
        self._client = _Client(number, local).to_client()

    def fit(self, ins, timeout, group_id):
        return self._client.fit(ins)

    def evaluate(self, ins, timeout, group_id):
        raise AssertionError("the benchmark only trains")  # the framework asks for the method

    get_parameters = get_properties = reconnect = evaluate


def _proxies(problem: FederatedProblem) -> list[ClientProxy]:
    local = local_training(problem)
    return [_Proxy(client, local) for client in range(len(problem.features))]
