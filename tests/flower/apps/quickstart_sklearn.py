"""Like Flower's quickstart-sklearn: logistic regression whose parameters are set by hand."""

import warnings
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from partitions import digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

client_app = ClientApp()
server_app = ServerApp()
LABELS = np.arange(10)


def new_model(context):
    epochs = context.run_config["local-epochs"]
    model = LogisticRegression(max_iter=epochs, warm_start=True, solver="saga", random_state=0)
    model.classes_ = LABELS
    set_params(model, [np.zeros((10, 64)), np.zeros(10)])
    return model


def set_params(model, arrays):
    model.coef_, model.intercept_ = arrays


@client_app.train()
def train(msg, context):
    model = new_model(context)
    set_params(model, msg.content["arrays"].to_numpy_ndarrays())
    images, labels = digits(context.node_config)["train"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few epochs do not converge
        model.fit(images, labels)
    loss = log_loss(labels, model.predict_proba(images), labels=LABELS)
    metrics = {"num-examples": len(labels), "train_logloss": loss}
    record = ArrayRecord([model.coef_, model.intercept_])
    content = RecordDict({"arrays": record, "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@client_app.evaluate()
def evaluate(msg, context):
    model = new_model(context)
    set_params(model, msg.content["arrays"].to_numpy_ndarrays())
    images, labels = digits(context.node_config)["test"]
    loss = log_loss(labels, model.predict_proba(images), labels=LABELS)
    metrics = {"num-examples": len(labels), "test_logloss": loss}
    metrics["accuracy"] = model.score(images, labels)
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)


@server_app.main()
def main(grid, context):
    model = new_model(context)
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([model.coef_, model.intercept_]),
        num_rounds=context.run_config["num-server-rounds"],
    )
    out = Path(context.run_config["out"])
    np.savez(out / "final_model.npz", *result.arrays.to_numpy_ndarrays())
