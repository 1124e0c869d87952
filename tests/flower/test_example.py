"""The Flower app in examples/flower-mnist: its clients, and a run in Flower's simulation."""

import gzip
import importlib
import json
import math
import os
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest
from deployment import wait_until
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import fedavot as fa

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-mnist"
N_CLIENTS = 30
RARE = range(21, 30)


@pytest.fixture
def module(monkeypatch):
    """Import a module of the example by name."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    return importlib.import_module


def idx(values):
    """Return an array of bytes in the IDX format."""
    lengths = np.array(values.shape, dtype=">u4").tobytes()
    return bytes((0, 0, 8, values.ndim)) + lengths + values.astype(np.uint8).tobytes()


def write_digits(folder, *, each, test_each):
    for stem, count in (("train", each), ("t10k", test_each)):
        labels = np.repeat(np.arange(10), count)
        images = np.tile(labels[:, None, None], (1, 28, 28))
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            path = folder / f"{stem}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(idx(values)))


def left_behind(marker):
    """Return the commands of live processes that have the marker in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it ended, or is not ours
            continue
    return found


def test_every_digit_is_held_by_six_clients(module):
    data = module("flower_mnist.data")
    held = np.array([data.digits_of(client) for client in range(N_CLIENTS)])
    assert held.shape == (N_CLIENTS, 2)
    assert np.bincount(held.ravel()).tolist() == [6] * 10


def test_rare_clients_hold_seven_to_nine_and_nobody_else_does(module):
    data = module("flower_mnist.data")
    for client in range(N_CLIENTS):
        digits = set(data.digits_of(client))
        assert digits <= ({7, 8, 9} if client in RARE else set(range(7)))


def test_no_image_is_dealt_twice_or_tested_with(module):
    data = module("flower_mnist.data")
    dealt = np.concatenate([part.numpy() for part in data.deal("", 120)])
    assert dealt.size == np.unique(dealt).size == N_CLIENTS * 120
    train, test = data.examples()
    assert len(train.digits) + len(test.digits) == 5000
    kept = {image.numpy().tobytes() for image in test.images}
    assert not kept & {train.images[position].numpy().tobytes() for position in dealt}


def test_a_folder_of_idx_files_gives_its_own_test_digits(module, tmp_path):
    data = module("flower_mnist.data")
    write_digits(tmp_path, each=12, test_each=3)
    train, test = data.examples(str(tmp_path))
    assert (len(train.digits), len(test.digits)) == (120, 30)
    part = data.part_of(29, folder=str(tmp_path), size=4)
    # Every image is as grey as its digit says.
    expected = (part.digits.double() / 255 - data.MEAN) / data.SPREAD
    assert np.allclose(part.images.mean(dim=(1, 2, 3)), expected)


def test_clients_are_there_as_often_as_their_probabilities_say(module):
    clients = module("flower_mnist.clients")
    rounds = 1000
    there = np.array(
        [
            [clients.is_there(client, round_number=number, seed=0) for client in range(N_CLIENTS)]
            for number in range(1, rounds + 1)
        ]
    )
    wanted = clients.probabilities()
    # Five standard deviations: one seed in sixty thousand would fail.
    allowed = 5 * np.sqrt(wanted * (1 - wanted) / rounds)
    assert (np.abs(there.mean(axis=0) - wanted) < allowed).all()


def test_who_is_there_follows_from_seed_round_and_client_alone(module):
    clients = module("flower_mnist.clients")

    def drawn(seed):
        return [
            clients.is_there(client, round_number=number, seed=seed)
            for number in range(1, 11)
            for client in range(N_CLIENTS)
        ]

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)


def test_counting_all_clients_alike_is_attainable(module):
    probabilities = module("flower_mnist.clients").probabilities()
    law = fa.IndependentClients(probabilities)
    importance = np.full(N_CLIENTS, 1 / N_CLIENTS)
    certificate = fa.certify(importance, law)
    assert certificate.feasible
    assert certificate.verify(importance, law)


def test_an_absent_client_declines_to_train_and_nothing_else(module, monkeypatch):
    absence, clients = module("flower_mnist.absence"), module("flower_mnist.clients")
    # Messages can be written only where Flower believes that it is running something.
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)

    def answer(message_type, number):
        content = RecordDict({"config": ConfigRecord({"server-round": number})})
        message = Message(content, dst_node_id=1, message_type=message_type)
        context = Context(0, 1, {"partition-id": 29}, RecordDict(), {"seed": 0})
        return absence.sometimes_absent(message, context, lambda *_: "passed on")

    for number in range(1, 41):
        there = clients.is_there(29, round_number=number, seed=0)
        reply = answer("train", number)
        assert (reply == "passed on") if there else reply.has_error()
        assert answer("evaluate", number) == answer("query.fedavot", number) == "passed on"


def test_groups_are_tested_on_their_own_digits(module):
    data, task = module("flower_mnist.data"), module("flower_mnist.task")
    net = task.new_net(0)
    for parameter in net.parameters():
        parameter.data.zero_()
    # The last layer's bias is all that is left: digit 8 always wins, by a margin of 1.
    net[-1].bias.data[8] = 1.0
    held = [data.digits_of(client) for client in range(N_CLIENTS)]
    found = task.test(net, data.examples().test, held)
    total = math.log(9 + math.e)
    assert found == pytest.approx(
        {
            "accuracy": 0.1,
            "accuracy-rare": 1 / 3,
            "accuracy-frequent": 0.0,
            "loss": total - 0.1,
            "loss-rare": total - 1 / 3,
            "loss-frequent": total,
        },
        rel=1e-6,
    )


def test_the_table_gives_means_of_the_last_rounds_and_their_spread_over_seeds(module):
    report = module("report")
    metrics = dict.fromkeys(report.COLUMNS, 0.0)
    early = [metrics | {"loss": 9.0}] * 5
    runs = [
        report.Run("fedavot", seed, early + [metrics | {"loss": loss}] * report.TAIL, 0.3, 1.0)
        for seed, loss in enumerate((1.0, 2.0))
    ]
    assert "| FedAVOT | 1.500 ± 0.707 | 0.000 ± 0.000 |" in report.table(runs)


@pytest.mark.slow
def test_a_comparison_in_simulation_finishes_and_leaves_nothing_running(module, tmp_path):
    is_there = module("flower_mnist.clients").is_there
    marker = f"FEDAVOT_TEST={uuid.uuid4()}"
    name, value = marker.split("=")
    command = [sys.executable, "compare.py", "--rules", "fedavot", "--seeds", "0"]
    done = subprocess.run(
        [*command, "--rounds", "3", "--out", str(tmp_path)],
        cwd=EXAMPLE,
        env=os.environ | {name: value},
        capture_output=True,
        text=True,
        check=False,
    )
    # compare.py asks `flwr list` for the status, and fails unless it is "finished:completed".
    assert done.returncode == 0, done.stdout + done.stderr
    for file in ("results.json", "summary.md", "comparison.png"):
        assert (tmp_path / file).stat().st_size > 0
    run = tmp_path / "runs" / "fedavot-0"
    tested = json.loads((run / "results.json").read_text())["rounds"]
    assert [one["round"] for one in tested] == [0, 1, 2, 3]
    logged = [json.loads(line) for line in (run / "participation.jsonl").read_text().splitlines()]
    assert [one["round"] for one in logged] == [1, 2, 3]
    everybody = {str(client) for client in range(N_CLIENTS)}
    for one in logged:
        there = {
            name for name in everybody if is_there(int(name), round_number=one["round"], seed=0)
        }
        assert set(one["asked"]) == everybody
        assert set(one["replied"]) == set(one["weights"]) == there
        assert set(one["failed"]) == everybody - there
        assert sum(one["weights"].values()) == pytest.approx(1.0)
    wait_until(
        lambda: not left_behind(marker),
        what="Ray and Flower have ended",
        progress=lambda: left_behind(marker),
        every=0.5,
    )


@pytest.mark.slow
def test_a_run_that_fails_in_simulation_is_noticed(module, tmp_path):
    simulation = module("simulation").simulation
    with simulation() as flower, pytest.raises(RuntimeError, match="ended as finished:failed"):
        flower.run({"rule": "fedagv"}, tmp_path / "flower.log")
    assert "rule is 'fedagv'" in (tmp_path / "flower.log").read_text()
