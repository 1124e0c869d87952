"""Ready-made ``on_round`` callbacks that write rounds to TensorBoard or MLflow.

Each writes the number of clients available, asked, replied, failed, late, excluded and refused, the
gap as a fraction, the effective cohort size, the largest weight and the training metrics. Both
packages are optional extras.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from fedavot._checks import require
from fedavot._files import PathLike
from fedavot.flower.kept.log import Round

COUNTED = ("available", "asked", "replied", "failed", "late", "excluded", "refused")


def to_tensorboard(folder: PathLike) -> Callable[[Round], None]:
    """Return a callback that writes TensorBoard event files.

    Parameters
    ----------
    folder : path
        TensorBoard's log folder; ``tensorboard --logdir FOLDER`` shows it.
    """
    require("tensorboard", "tensorboardX", by="to_tensorboard")
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(folder), flush_secs=1)

    def write(record: Round) -> None:
        for name, value in numbers(record):
            writer.add_scalar(name, value, record.round)
        writer.flush()

    return write


def to_mlflow(tracking_uri: str | None = None, *, run_name: str = "fedavot") -> Any:
    """Return a callback that logs to the active MLflow run, or to a new one.

    Parameters
    ----------
    tracking_uri : str, optional
        Where MLflow keeps its runs; MLflow's own setting by default.
    run_name : str
        Name of the new run if none is active.
    """
    require("mlflow", "mlflow", by="to_mlflow")
    import mlflow

    if tracking_uri is not None:
        mlflow.set_tracking_uri(tracking_uri)
    run = mlflow.active_run() or mlflow.start_run(run_name=run_name)

    def write(record: Round) -> None:
        for name, value in numbers(record):
            allowed = re.sub(r"[^\w\-. /:]", "_", name)
            mlflow.log_metric(allowed, value, step=record.round, run_id=run.info.run_id)

    return write


def numbers(record: Round) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a round with the names under which they are charted."""
    for name in COUNTED:
        yield f"fedavot/{name}", float(len(getattr(record, name)))
    yield "fedavot/gap", record.gap
    yield "fedavot/effective_cohort_size", record.effective_cohort_size
    yield "fedavot/largest_weight", max(record.weights.values(), default=0.0)
    for name, value in record.metrics.items():
        if isinstance(value, int | float):
            yield f"train/{name}", float(value)
