"""Memory: the steady rule in Flower, with memories on the server or on the clients."""

from pathlib import Path

from flwr.app import ArrayRecord

from fedavot.flower.memory.on_clients import OnClients
from fedavot.flower.memory.steady import OnServer, SteadyMemory
from fedavot.flower.options import Memory
from fedavot.flower.worth.weigher import Weigher


def memory_of(
    model: ArrayRecord,
    options: Memory,
    weigher: Weigher,
    folder: Path | None,
    *,
    resume: bool = False,
) -> SteadyMemory:
    """Return the memory of a run.

    Parameters
    ----------
    model : ArrayRecord
        A model with the names, shapes and types of the arrays.
    options : Memory
        Where memories are, and the constants of the rule.
    weigher : Weigher
        The clients, their indices and their importance.
    folder : Path or None
        Folder for memories on the server, or for the name under which clients keep theirs.
    resume : bool
        Whether clients continue with the memories that they have under that name.
    """
    if folder is None or options.where == "clients":
        return OnClients(model, options, weigher, folder, resume=resume)
    return OnServer(model, options, weigher, folder)
