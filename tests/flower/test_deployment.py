"""A federation over TLS with registered SuperNodes, one of which dies, and whose server dies too.

The story is told once, in about two minutes; each test looks at what it left behind.
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from deployment import SUPERLINK, Deployment, write_key
from flwr.serverapp.strategy import FedAvg
from grid import LocalGrid, Node, arrays_of, record_of
from learnt import Learner

from fedavot.flower import Admission, FedAVOT
from steady_formula import Steady

APP = Path(__file__).parent / "app"
sys.path.insert(0, str(APP))

from hospitals.client import app  # noqa: E402
from hospitals.model import IMPORTANCE, initial, updated  # noqa: E402

SITES = {"hospital-a": 1, "hospital-b": 2, "hospital-c": 3}
# What each node says of itself; the last one claims the name of the first.
CLAIMS = {"hospital-a": "hospital-a", "hospital-b": "hospital-b", "hospital-c": "hospital-a"}
VICTIM = "hospital-c"
QUIET_ROUNDS, ROUNDS = 2, 5
KILLED = 3  # a round in which memories of those who have returned are trusted
ROUNDING = 1e-5  # float32 sums of three terms over five rounds
# Waits in these tests end when nothing happens any more, however busy the machine is.
pytestmark = pytest.mark.slow


@dataclass
class Story:
    """What is left when all is over."""

    quiet: Path
    quiet_status: str
    broken: Path
    broken_status: str
    logged_at_kill: list[int]
    victim_log: str
    stranger: int
    stranger_log: str
    second: int
    nodes: dict[str, int]
    left: list[int]


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deployment")
    with Deployment(folder, APP) as deployment:
        told = tell(deployment)
    told.left = deployment.processes()
    return told


def tell(deployment):
    """Train undisturbed, then again with a SuperNode and the server killed on the way."""
    keys = {part: write_key(deployment.folder / part) for part in (*SITES, "stranger", "second")}
    deployment.start_superlink()
    nodes = {name: deployment.register(keys[name], name=name) for name in SITES}
    for name in SITES:
        start(deployment, name, keys)
    assert all(deployment.is_accepted(name) for name in SITES)

    quiet = deployment.folder / "quiet"
    run = deployment.submit(folder=str(quiet), rounds=QUIET_ROUNDS)
    quiet_status = finished(deployment, run, quiet)

    broken = deployment.folder / "broken"
    run = deployment.submit(folder=str(broken), rounds=ROUNDS, pause=2.0, memory=True)
    catch_at_work(deployment, VICTIM, run, KILLED)
    deployment.kill(VICTIM)
    catch_at_work(deployment, "hospital-a", run, KILLED)
    deployment.kill(SUPERLINK)
    logged_at_kill = [entry["round"] for entry in rounds(broken)]

    deployment.start_superlink()
    again = {"folder": str(broken), "memory": True, "resume": True}
    run = deployment.submit(rounds=ROUNDS, hold=KILLED, **again)
    stranger = deployment.start_node("stranger", keys["stranger"])
    second = deployment.register(keys["second"], name="hospital-a")
    deployment.start_node("second", keys["second"], config="site=1")
    deployment.wait_until(lambda: missed(broken), what=f"a round misses {VICTIM}")
    start(deployment, VICTIM, keys)
    assert deployment.is_accepted(VICTIM)
    assert deployment.is_accepted("second")
    assert not deployment.is_accepted("stranger")
    (broken / "go").touch()
    return Story(
        quiet=quiet,
        quiet_status=quiet_status,
        broken=broken,
        broken_status=finished(deployment, run, broken),
        logged_at_kill=logged_at_kill,
        victim_log=deployment.log(VICTIM),
        stranger=stranger.wait(),
        stranger_log=deployment.log("stranger"),
        second=second,
        nodes=nodes,
        left=[],
    )


def start(deployment, name, keys):
    config = f'site={SITES[name]} partition-id="{CLAIMS[name]}"'
    deployment.start_node(name, keys[name], config=config)


def catch_at_work(deployment, name, run, server_round):
    line = f"run {run}, round {server_round}: training"
    deployment.wait_until(lambda: line in deployment.log(name), what=f"{name} says {line}")


def finished(deployment, run, folder):
    """Wait until a run is finished and return its status."""

    def status():
        found = deployment.status(run)
        return found if found.startswith("finished") else None

    def is_over():
        return (folder / "final.npz").exists() or re.search(over, deployment.log(SUPERLINK))

    # Each question about the status starts a process: only ask when the app has saved its result,
    # or has failed.
    over = rf"Finished task \d+ of run {run}"
    deployment.wait_until(is_over, what=f"run {run} ends")
    return deployment.wait_until(status, what=f"run {run} is finished", every=1.0)


def rounds(folder):
    """Return the participation log as far as it is written."""
    path = folder / "participation.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def missed(folder):
    """Return the rounds without the victim."""
    return [entry["round"] for entry in rounds(folder) if VICTIM not in entry["replied"]]


def final(folder):
    with np.load(folder / "final.npz") as archive:
        return dict(archive)


def replayed(log, **options):
    """Return the final parameters of an uninterrupted run with the replies of a log."""
    nodes = {site: Node(app, {"site": site}, name) for name, site in SITES.items()}

    def fate(node, message):
        entry = log[message.content["config"]["server-round"] - 1]
        return "reply" if nodes[node].name in entry["replied"] else "silent"

    def set_scene(number):
        for node in nodes.values():
            node.online = number < len(log) and node.name in log[number]["available"]

    set_scene(0)
    strategy = FedAVOT(
        FedAvg(fraction_evaluate=0.0),
        importance=IMPORTANCE,
        admission=Admission(identity="registered"),
        on_round=lambda done: set_scene(done.round),
        **options,
    )
    result = strategy.start(
        grid=LocalGrid(nodes, fate), initial_arrays=record_of(initial()), num_rounds=len(log)
    )
    return arrays_of(result.arrays)


def by_hand(log, *, remembers):
    """Return the final parameters and each round's weights, by NumPy alone."""
    shares = np.array(list(IMPORTANCE.values()))
    aligner, rule = Learner(shares), Steady()
    model, given = initial(), []
    for entry in log:
        if not entry["replied"]:
            given.append({})
            continue
        cohort = [list(IMPORTANCE).index(name) for name in entry["replied"]]
        weights = aligner.observe(cohort)
        changes = {}
        for client, name in zip(cohort, entry["replied"], strict=True):
            trained = updated(model, site=SITES[name], server_round=entry["round"])
            changes[client] = flat(trained) - flat(model)
        change = (
            rule.change(changes, weights, shares) if remembers else weights @ [*changes.values()]
        )
        after = np.split(flat(model) + change, [6])
        model = {
            "kernel": after[0].reshape(3, 2),
            "offset": after[1],
            "rounds": model["rounds"] + 1,
        }
        given.append(dict(zip(entry["replied"], weights.tolist(), strict=True)))
    return model, given


def flat(model):
    """Return the parameters of a model as one vector, without its counter."""
    return np.concatenate([model["kernel"].ravel(), model["offset"]]).astype(np.float64)


def test_an_undisturbed_run_completes(story):
    assert story.quiet_status == "finished:completed"
    assert [entry["round"] for entry in rounds(story.quiet)] == [1, 2]


def test_a_run_resumed_after_its_server_was_killed_completes(story):
    assert story.logged_at_kill == [1, 2]
    assert story.broken_status == "finished:completed"


def test_every_round_is_logged_once_and_in_order_though_the_server_was_killed(story):
    assert [entry["round"] for entry in rounds(story.broken)] == list(range(1, ROUNDS + 1))


def test_those_asked_replied_failed_came_late_or_were_excluded(story):
    for entry in rounds(story.quiet) + rounds(story.broken):
        fates = [*entry["replied"], *entry["failed"], *entry["late"], *entry["excluded"]]
        assert sorted(fates) == sorted(entry["asked"])
        assert set(entry["asked"]) <= set(entry["available"])


def test_a_killed_node_misses_its_round_and_is_weighed_again_when_it_is_back(story):
    assert missed(story.broken) == [KILLED]
    weighed = [entry["round"] for entry in rounds(story.broken) if VICTIM in entry["weights"]]
    assert weighed == [1, 2, 4, 5]


def test_a_node_restarted_with_its_key_has_its_old_id(story):
    assert f"SuperNode ID: {story.nodes[VICTIM]}" in story.victim_log


@pytest.mark.parametrize("which", ["quiet", "broken"])
def test_the_final_parameters_are_to_the_bit_those_of_an_uninterrupted_run(story, which, tmp_path):
    folder = getattr(story, which)
    again = replayed(rounds(folder), memory=which == "broken", folder=tmp_path)
    assert again.keys() == final(folder).keys()
    for name, value in final(folder).items():
        assert value.dtype == again[name].dtype
        assert value.tobytes() == again[name].tobytes()


@pytest.mark.parametrize("which", ["quiet", "broken"])
def test_weights_and_parameters_are_those_of_a_computation_by_hand(story, which):
    folder = getattr(story, which)
    model, weights = by_hand(rounds(folder), remembers=which == "broken")
    for entry, given in zip(rounds(folder), weights, strict=True):
        assert entry["weights"] == pytest.approx(given, abs=1e-12)
    for name, value in final(folder).items():
        np.testing.assert_allclose(value, model[name], atol=ROUNDING)


def test_a_counter_of_the_model_counts_the_rounds_somebody_replied_in(story):
    counter = final(story.broken)["rounds"]
    assert counter.dtype == np.int64
    assert counter.tolist() == [sum(bool(entry["replied"]) for entry in rounds(story.broken))]


def test_a_node_with_an_unregistered_key_is_refused(story):
    assert story.stranger != 0
    assert "Failed to activate SuperNode" in story.stranger_log
    for entry in rounds(story.broken):
        assert set(entry["available"]) <= set(SITES)
        assert set(entry["refused"]) <= {f"node {story.second}"}


def test_a_registered_node_that_claims_another_name_keeps_its_own(story):
    for entry in rounds(story.quiet):
        assert entry["available"] == sorted(SITES)
        assert entry["refused"] == {}


def test_a_second_key_under_a_name_in_use_is_refused(story):
    first, _, _, *later = rounds(story.broken)
    assert first["refused"] == {}
    for entry in later:
        reason = entry["refused"][f"node {story.second}"]
        assert "hospital-a" in reason
        assert str(story.nodes["hospital-a"]) in reason


def test_no_process_is_left(story):
    assert story.left == []


def test_no_process_is_left_when_the_story_breaks_off(tmp_path):
    deployment = Deployment(tmp_path, APP)
    found = []

    def break_off():
        with deployment:
            deployment.start_superlink()
            found.extend(deployment.processes())
            raise RuntimeError("cut short")

    with pytest.raises(RuntimeError, match="cut short"):
        break_off()
    assert found
    assert deployment.processes() == []
