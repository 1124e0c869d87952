"""The server: FedAVOT over FedAvg, which waits after a given round until it is told to go on."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from fedavot.flower import Admission, FedAVOT
from hospitals.model import IMPORTANCE, initial

app = ServerApp()


@app.main()
def main(grid, context):
    """Train, and save the final parameters beside the participation log."""
    config = context.run_config
    folder = Path(config["folder"])

    def hold(done):
        while done.round == config["hold"] and not (folder / "go").exists():
            time.sleep(0.1)

    strategy = FedAVOT(
        FedAvg(fraction_evaluate=0.0),
        importance=IMPORTANCE,
        memory=config["memory"],
        admission=Admission(identity="registered"),
        folder=folder,
        resume=config["resume"],
        on_round=hold,
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({name: Array(value) for name, value in initial().items()}),
        num_rounds=config["rounds"],
        timeout=config["timeout"],
    )
    final = {name: array.numpy() for name, array in result.arrays.items()}
    np.savez(folder / "final.npz", **final)
