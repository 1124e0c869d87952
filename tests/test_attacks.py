"""A slice of every attack finds nothing, and every attack would find what it looks for."""

import dataclasses
import json
import multiprocessing
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from attacks import campaign, certificates, convergence, extremes, faults, fuzz, logs, stalls
from attacks.campaign import Fault, settled
from attacks.disk import Disk, Killed
from attacks.problems import KINDS, Problem, Setting
from attacks.references import listed, mixture

import fedavot as fa
from fedavot.certificate import Certificate
from fedavot.errors import FileFormatError

SEED = 7
ENTRIES = {
    **{f"certificates {name}": (make, 30) for name, (make, _) in certificates.ENTRIES.items()},
    "certificates falsified": (certificates.falsified, 300),
    **{f"convergence {name}": (make, 60) for name, (make, _) in convergence.ENTRIES.items()},
    "extremes": (extremes.extremes, 25),
    **{f"fuzz {name}": (make, 60) for name, (make, _) in fuzz.ENTRIES.items()},
    **{name: (fuzz.ENTRIES[name.split()[1]][0], 150) for name in ("fuzz log", "fuzz importance")},
}
"""How the judge of every entry is made, and how many inputs it gets here."""
ONE_OUTCOME = ("fuzz saved", "convergence soft")
"""Where everything is refused, or everything solved."""


def outcomes_of(make, folder, n_inputs):
    judge = make(folder)
    return {number: settled(judge, SEED, number) for number in range(n_inputs)}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_slice_of_an_attack_finds_nothing(entry, tmp_path):
    outcomes = outcomes_of(ENTRIES[entry][0], tmp_path, ENTRIES[entry][1])
    assert {n: it for n, it in outcomes.items() if isinstance(it, Fault)} == {}
    assert len(set(outcomes.values())) > (entry not in ONE_OUTCOME)


@pytest.mark.parametrize("name", stalls.SCENARIOS)
def test_a_small_scenario_is_solved_and_its_certificate_verifies(name):
    outcome = settled(stalls.ENTRIES[name](None), 0, 30)
    assert not isinstance(outcome, Fault), outcome


HARD = json.loads((Path(__file__).parent / "hard_problems.json").read_text())
"""Problems that earlier versions of the attacks found, when they were still unsolved."""


@pytest.mark.parametrize("hard", HARD, ids=range(len(HARD)))
def test_what_was_wrong_once_is_right(hard):
    importance, (cohorts, chances) = np.array(hard["importance"]), hard["parts"][0]
    count = importance.size
    laws = [fa.Cohorts(one, some, n_clients=count) for one, some in hard["parts"]]
    if hard["kind"] == "variance":
        members = [np.array(cohort) for cohort in cohorts]
        options = {"objective": "variance"}
        question = (importance, laws[0], members, np.array(chances), options)
        outcome = convergence.attack(convergence.Problem(*question))
    else:
        law = laws[0] if len(laws) == 1 else fa.Mixture(laws, hard["weights"])
        tables = [listed(*part) for part in hard["parts"]]
        masses = mixture([(one, sum(one.values())) for one in tables], hard["weights"])
        problem = Problem("", importance, Setting(law, masses, sum(masses.values())))
        outcome = extremes.solved(problem, np.random.default_rng(0))
    assert outcome in ("feasible", "infeasible", "exact", "nearest")


@pytest.mark.parametrize("kind", KINDS)
def test_a_verification_that_accepts_nothing_is_found_out(kind, monkeypatch):
    monkeypatch.setattr(Certificate, "verify", lambda *_, **__: False)
    assert "not verified" in certificates.certified(None, kind=kind)(0, 0)


def test_a_verification_that_accepts_everything_is_found_out(monkeypatch):
    monkeypatch.setattr(Certificate, "verify", lambda *_, **__: True)
    outcomes = Counter(outcomes_of(certificates.falsified, None, 300).values())
    assert set(outcomes) - {"still true"} == {it for it in outcomes if isinstance(it, Fault)}
    fields = {str(it).split()[0] for it in outcomes if isinstance(it, Fault)}
    assert fields == {*certificates.FIELDS, *certificates.WHOLE, "problem"}


def test_a_refusal_of_a_proper_problem_is_found_out(monkeypatch):
    def refuse(importance, law):
        raise FileFormatError("on purpose")

    monkeypatch.setattr(fa, "certify", refuse)
    outcome = certificates.certified(None, kind="explicit")(0, 0)
    assert isinstance(outcome, Fault)
    assert "on purpose" in outcome


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"attained": np.array([0.6, 0.4])}, "the cohorts give"),
        ({"status": fa.Status.EXACT, "importance": np.array([0.9, 0.1])}, "exact at"),
        ({"status": fa.Status.NEAREST}, "nearest at"),
        ({"status": fa.Status.SOFT}, "soft at"),
        ({"potentials": np.array([0.0, -np.inf])}, "potentials"),
    ],
)
def test_an_alignment_that_is_not_what_it_says_is_found(change, words):
    importance, law = [0.5, 0.5], fa.UniformCohorts(2, 2)
    alignment = dataclasses.replace(fa.align(importance, law), **change)
    certificate = fa.certify(importance, law)
    assert words in extremes._wrong_alignment(alignment, certificate, [([0, 1], 1.0)])


def test_a_plan_that_is_not_the_best_is_found():
    cohorts, chances = [np.array([0, 1]), np.array([1, 2])], np.array([0.5, 0.5])
    importance, law = np.array([0.3, 0.4, 0.3]), fa.Cohorts(cohorts, chances)
    problem = convergence.Problem(importance, law, cohorts, chances, {"objective": "variance"})
    right = fa.align(importance, law, objective="variance")
    assert list(convergence.faults(problem, right)) == []
    wrong = dataclasses.replace(right, potentials=right.potentials + 0.1 * np.eye(3)[0])
    assert len(list(convergence.faults(problem, wrong))) > 0


@pytest.mark.parametrize(
    ("status", "verified", "seconds", "gigabytes", "faulty"),
    [
        ("exact", True, (1.0, 1.0), 0.5, False),
        ("unconverged", True, (1.0, 1.0), 0.5, True),
        ("exact", False, (1.0, 1.0), 0.5, True),
        ("exact", True, (31.0, 1.0), 0.5, True),
        ("exact", True, (1.0, 31.0), 0.5, True),
        ("exact", True, (1.0, 1.0), 1.5, True),
    ],
)
def test_what_takes_too_long_or_is_not_solved_is_found(
    status, verified, seconds, gigabytes, faulty
):
    alignment = dataclasses.replace(fa.align([1.0], fa.UniformCohorts(1, 1)), status=status)
    outcome = stalls.outcome(alignment, verified, seconds, gigabytes)
    assert isinstance(outcome, Fault) == faulty


@pytest.mark.parametrize("form", [*logs.FORMS, logs.parquet])
def test_every_form_is_read_as_it_is_made_now_and_then(tmp_path, form):
    def judge(seed, number):
        log, options = form(np.random.default_rng([seed, number]))
        return logs.read(tmp_path, log, {}, options, False)

    n_inputs = 5 if form is logs.parquet else 20
    assert "read" in {settled(judge, 3, number) for number in range(n_inputs)}


@pytest.mark.parametrize(
    ("clients", "members", "words"),
    [
        (("a", "a"), [0, 1], "distinct"),
        (("a", "b"), [1, 0], "order"),
        (("a", "b"), [0, 7], "order"),
    ],
)
def test_a_log_that_is_not_proper_is_found(clients, members, words):
    from fedavot.audit import Participation

    log = Participation(clients, np.array([0, 2]), np.array(members, dtype=np.int32))
    assert words in logs._wrong_log(log)


def test_an_input_goes_through_the_whole_command_line(tmp_path):
    data = b"round,client\n1,a\n1,b\n2,a\n"
    assert logs.read(tmp_path, data, {}, {}, True) == "run"


def refuses(seed, number):
    raise FileFormatError("no")


def refuses_silently(seed, number):
    raise FileFormatError("")


def fails(seed, number):
    raise KeyError("importance")


def warns(seed, number):
    import warnings

    warnings.warn("from some library", RuntimeWarning, stacklevel=1)


@pytest.mark.parametrize(
    ("judge", "outcome"),
    [(refuses, "refused"), (refuses_silently, None), (fails, None), (warns, None)],
)
def test_only_an_error_of_the_library_with_a_message_is_a_refusal(judge, outcome):
    found = settled(judge, 0, 0)
    assert isinstance(found, Fault) == (outcome is None)
    assert outcome is None or found == outcome


def ends(folder):
    return lambda seed, number: os._exit(3) if number == 1 else "read"


def allocates(folder):
    return lambda seed, number: str(len(bytearray(1 << 40))) if number == 1 else "read"


@pytest.mark.parametrize("make", [ends, allocates])
def test_an_input_that_ends_or_fills_the_process_is_found_and_the_next_is_read(make):
    counts, found = campaign.attack(make, range(3), seed=0)
    assert len(found) == 1
    assert found[0].startswith("input 1: ")
    assert counts == {"found": 1, "read": 2}


def test_a_process_that_says_nothing_is_found(monkeypatch):
    monkeypatch.setattr(campaign, "PATIENCE", 0.0)
    ours, theirs = multiprocessing.Pipe(duplex=False)
    assert "no answer" in campaign._listen(ours, [0], Counter(), [])
    theirs.close()
    ours.close()


@pytest.mark.parametrize("make", [convergence.ENTRIES["soft"][0], ends])
def test_the_command_judges_one_input_by_its_number(make, capsys):
    status = campaign.main("some", "Attack.", {"entry": (make, 10)}, ["--only", "1"])
    assert status == (make is ends)
    *_, last = capsys.readouterr().out.splitlines()
    assert last == f"1 inputs, {status} found"


EVERY = {"alignment": 1, "aligner": 2, "sample": 13, "audit": 31, "study": 61}
OTHERWISE = 83
"""How many points there are for each one that is tried; no multiple of the three ways to fail."""


@pytest.mark.parametrize("name", faults.SCENARIOS)
def test_after_a_failure_of_the_disk_a_program_ends_as_if_there_had_been_none(name, tmp_path):
    every = EVERY.get(name, OTHERWISE)
    survived, found = faults.campaign(faults.SCENARIOS[name](), tmp_path, every=every)
    assert found == []
    assert all(survived.values())


def write_in_place(folder):
    with (folder / "file").open("wb") as stream:
        stream.write(b"x" * 100)


def write_without_flushing(folder):
    temporary = folder / "temporary"
    with temporary.open("wb") as stream:
        stream.write(b"x" * 100)
    os.replace(temporary, folder / "file")
    (folder / "done").mkdir(exist_ok=True)


def is_old_or_new(folder, kind):
    return (folder / "file").read_bytes() in (b"old", b"x" * 100)


@pytest.mark.parametrize(
    ("act", "kinds"),
    [(write_in_place, {"full", "killed", "power"}), (write_without_flushing, {"power"})],
)
def test_a_program_that_writes_carelessly_is_found_out(act, kinds, tmp_path):
    def prepare(folder):
        (folder / "file").write_bytes(b"old")

    careless = faults.Scenario(act, prepare, is_old_or_new)
    _, found = faults.campaign(careless, tmp_path / "work")
    assert {line.split()[0] for line in found if "neither" in line} == kinds


def test_a_program_that_leaves_a_file_under_a_drawn_name_is_found_out(tmp_path):
    def act(folder):
        (folder / os.urandom(8).hex()).write_bytes(b"x")
        (folder / "done").write_bytes(b"x")

    _, found = faults.campaign(faults.Scenario(act), tmp_path / "work")
    kinds = {line.split()[0] for line in found if "another result: ['*']" in line}
    assert kinds == {"full", "killed", "power"}


def test_nothing_can_be_tidied_up_after_the_process_is_killed(tmp_path):
    path = tmp_path / "file"

    def act():
        try:
            with path.open("wb") as stream:
                stream.write(b"x" * 100)
                stream.flush()
        finally:
            path.unlink()

    with pytest.raises(Killed), Disk(tmp_path, point=1, kind="killed") as disk:
        act()
    assert disk.operations == ["open", "write"]
    assert path.read_bytes() == b"x" * 50
