"""Options, attributes and apps that a user can get wrong: each is refused with what to write."""

import flwr.server.strategy as older
import numpy as np
import pytest
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from grid import LocalGrid, Node, app_of, everybody, federation, record_of, rounds_in

from fedavot.errors import OptionError
from fedavot.flower import FedAVOT, Memory, Weighting, introduce

MODEL = {"w": np.zeros(2, np.float32)}


def update(arrays, config, node):
    return {"w": arrays["w"] + 1}, {"num-examples": 1}


@pytest.mark.parametrize(
    "name",
    [
        *("importance", "memory", "weighting", "admission", "folder", "resume", "on_round"),
        *("strategy", "weighted_by_key", "keep_best"),
    ],
)
def test_what_is_set_in_the_constructor_cannot_be_set_afterwards(name):
    strategy = FedAVOT(everybody())
    with pytest.raises(OptionError, match=f"{name} is set in"):
        setattr(strategy, name, "anything")
    assert name in ("strategy", "weighted_by_key") or not hasattr(strategy.strategy, name)


def test_attributes_of_the_wrapped_strategy_can_still_be_set():
    class Own(FedAvg):
        folder = "its own"

    inner = Own()
    strategy = FedAVOT(inner)
    strategy.folder, strategy.fraction_train, strategy.new = "another", 0.5, 3
    assert (inner.folder, inner.fraction_train, strategy.new) == ("another", 0.5, 3)


def test_an_empty_folder_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FedAVOT(everybody(), folder="").start(federation(2, update), record_of(MODEL), 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"resume": True}, {"memory": True}])
def test_an_empty_folder_is_refused_where_one_is_needed(options):
    with pytest.raises(OptionError, match="needs a folder, and folder is ''"):
        FedAVOT(everybody(), folder="", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weighting": "alignment.json"}, r"Weighting\.load"),
        ({"weighting": {"softness": 0}}, r"Weighting\(softness"),
        ({"admission": "registered"}, r"Admission\(identity='registered'\)"),
        ({"resume": "false", "folder": "x"}, "resume is 'false'"),
        ({"resume": 0}, "resume is 0"),
        ({"on_round": "print"}, "on_round is 'print'"),
        ({"memory": "clients"}, "memory is 'clients'.*on the server: memory=True"),
        ({"memory": 1}, "True, False or Memory"),
    ],
)
def test_an_option_of_the_wrong_type_is_refused_with_the_right_one(options, message):
    with pytest.raises(OptionError, match=message):
        FedAVOT(everybody(), **options)


def test_a_strategy_of_the_older_interface_is_recognised():
    class Own(older.FedAvgM):
        pass

    own = Own()
    for strategy, name in ((older.FedAvg(), "FedAvg"), (own, "FedAvgM")):
        with pytest.raises(OptionError, match=rf"{name}; import it from flwr\.serverapp"):
            FedAVOT(strategy)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "softness 2"),
        ({"weighting": Weighting(softness=0)}, "softness 0"),
        ({"importance": {"a": 1}}, "1 client listed"),
        ({"importance": {"a": 1, "b": 1}}, "2 clients listed"),
    ],
)
def test_the_summary_has_the_softness_and_the_number_of_clients(options, shown, caplog):
    caplog.set_level("INFO", "flwr")
    FedAVOT(everybody(), **options).summary()
    assert any(shown in it for it in caplog.messages)


def test_fewer_rounds_than_are_done_train_nothing_and_say_so(tmp_path, caplog):
    FedAVOT(everybody(), folder=tmp_path).start(federation(2, update), record_of(MODEL), 3)
    again = FedAVOT(everybody(), folder=tmp_path, resume=True)
    again.start(federation(2, update), record_of(MODEL), 2)
    assert len(rounds_in(tmp_path)) == 3
    assert any("num_rounds is 2, and 3 rounds are done" in it for it in caplog.messages)


def test_introducing_an_app_again_changes_nothing(tmp_path):
    seen = []
    app = introduce(introduce(app_of(update)))
    grid = LocalGrid({7 + i: Node(app, {"partition-id": i}) for i in range(2)})
    memory = Memory(correction=0.5)
    strategy = FedAVOT(everybody(), memory=memory, folder=tmp_path, on_round=seen.append)
    result = strategy.start(grid, record_of(MODEL), 3)
    assert [it.replied for it in seen] == [["0", "1"]] * 3
    assert result.arrays["w"].numpy() == pytest.approx([3.0, 3.0])


def test_an_app_with_its_own_answer_keeps_it():
    app = ClientApp()

    @app.query("fedavot")
    def answer(message, context):
        raise NotImplementedError

    found = dict(app._registered_funcs)
    assert introduce(app)._registered_funcs == found
