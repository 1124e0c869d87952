"""The core works with NumPy and SciPy alone, and each part with its own extra alone.

An environment is imitated by a folder of links to exactly the installed distributions that an
extra asks for, with what those ask for in turn; nothing else can be imported there.
"""

import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import fedavot

SOURCE = Path(fedavot.__file__).parent
PROJECT = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

CORE = """
import numpy as np, fedavot as fa, sys
law = fa.Cohorts([["a", "b"], ["b", "c"], ["c"]], clients=["a", "b", "c"])
importance = {"a": 0.5, "b": 0.3, "c": 0.2}
certificate = fa.certify(importance, law)
assert not certificate.feasible and certificate.verify(importance, law, exact=True)
alignment = fa.align(importance, law)
assert alignment.status == "nearest", alignment
alignment.save("alignment.json")
assert fa.Alignment.load("alignment.json").weights(["c", "b"]).sum() == 1
assert fa.align([0.2, 0.3, 0.5], law, objective="variance").status == "exact"
rng = np.random.default_rng(0)
chain = fa.Cohorts([[i, i + 1] for i in range(59)], rng.dirichlet(np.ones(59)))
wanted = rng.dirichlet(np.ones(60))
assert fa.certify(wanted, chain).proven
for other in (fa.UniformCohorts(9, 3), fa.IndependentClients(np.full(9, 0.2)),
              fa.Mixture([fa.UniformCohorts(9, 3), fa.UniformCohorts(9, 2)], [0.5, 0.5])):
    assert fa.align(np.full(9, 1 / 9), other).status == "exact"
    assert fa.align(rng.dirichlet(np.ones(9)), other, softness=0.1).status == "soft"
aligner = fa.OnlineAligner(importance, step=0.5)
aligner.observe(["a", "b"])
aligner.save("aligner.json")
assert fa.OnlineAligner.load("aligner.json").rounds == 1
chosen, weights = fa.select(np.array([0.2, 0.3, 0.5]), 2, rng)
assert len(chosen) == 2
"""
MANY = """
import warnings, numpy as np, fedavot as fa
law = fa.IndependentClients(np.linspace(1e-4, 3e-4, 25_000))
with warnings.catch_warnings(record=True) as shown:
    warnings.simplefilter("always")
    assert fa.align(np.full(25_000, 1 / 25_000), law).status == "exact"
assert [str(entry.message) for entry in shown if "fedavot[training]" in str(entry.message)]
"""
TRAINING = """
import numpy as np, fedavot as fa
from fedavot import rules, training
from fedavot.training.tasks.linear import linear_task
rng = np.random.default_rng(0)
clients = [(rng.normal(size=(8, 2)), rng.normal(size=8)) for _ in range(3)]
law, importance = fa.UniformCohorts(3, 2), [0.5, 0.3, 0.2]
problem = training.Problem(linear_task("three", clients), importance, law.sample)
known = rules.Known(importance, law)
for name in ("fedavot", "fedavg", "fedavot-steady"):
    how = training.Training(4, training.constant(0.1))
    run = training.train(problem, rules.build(name, known), how)
    assert run.ending == "finished", run
"""


def closure(requirements):
    """Return the distributions that requirements bring, with what those require in turn."""
    found, waiting = set(), [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        if requirement.name == "fedavot":
            waiting += [Requirement(text) for extra in requirement.extras for text in EXTRAS[extra]]
            continue
        for extra in ("", *requirement.extras):
            key = (requirement.name, extra)
            if key in found:
                continue
            found.add(key)
            for text in metadata.requires(requirement.name) or []:
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return sorted({name for name, _ in found})


def environment(folder, *extras):
    """Link the library and what its extras bring into a folder, and return the folder."""
    folder.mkdir()
    (folder / "fedavot").symlink_to(SOURCE)
    wanted = list(PROJECT["dependencies"])
    for name in closure(wanted + [text for extra in extras for text in EXTRAS[extra]]):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files if file.parts[0] != ".."}:
            link, target = folder / top, Path(distribution.locate_file(top))
            if target.exists() and not link.exists():
                link.symlink_to(target)
    return folder


def run(folder, *arguments):
    """Run Python where only an environment's packages can be imported."""
    work = folder.with_name(f"{folder.name}-work")
    work.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        capture_output=True,
        text=True,
        cwd=work,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "HOME": str(work)},
        check=False,
    )


def succeeds(folder, *arguments):
    done = run(folder, *arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return environment(tmp_path_factory.mktemp("bare") / "packages")


def test_the_core_needs_numpy_and_scipy_alone(bare):
    assert closure(PROJECT["dependencies"]) == ["numpy", "scipy"]
    succeeds(bare, "-c", CORE)


def test_many_clients_are_solved_without_jax_and_told_what_would_be_faster(bare):
    succeeds(bare, "-c", MANY)


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("training", "training"),
        ("experiments", "experiments"),
        ("audit", "audit"),
        ("flower", "flower"),
        ("cli", "cli"),
    ],
)
def test_what_needs_more_says_which_extra_brings_it(bare, module, extra):
    done = run(bare, "-c", f"import fedavot.{module}")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("fedavot.errors.MissingPackageError: ")
    assert f"pip install 'fedavot[{extra}]'" in last


def test_the_command_without_its_packages_is_one_line(bare):
    done = run(bare, "-m", "fedavot", "--help")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "fedavot[cli]" in done.stderr


def test_the_extra_cli_alone_has_help_and_names_what_a_command_needs(tmp_path):
    folder = environment(tmp_path / "packages", "cli")
    assert "audit" in succeeds(folder, "-m", "fedavot", "--help")
    for command, extra in (
        (("sample-log", "x"), "audit"),
        (("reproduce", "alignment"), "experiments"),
    ):
        done = run(folder, "-m", "fedavot", *command)
        assert done.returncode == 2
        assert f"fedavot[{extra}]" in done.stderr
        assert "Traceback" not in done.stderr


def test_the_extra_audit_alone_audits(tmp_path):
    folder = environment(tmp_path / "packages", "audit")
    succeeds(folder, "-m", "fedavot", "sample-log", "sample")
    log = tmp_path / "packages-work" / "sample" / "log.csv"
    succeeds(folder, "-m", "fedavot", "audit", str(log), "--out", "report")
    assert (tmp_path / "packages-work" / "report" / "report.html").exists()


def test_an_audit_needs_jax_only_for_a_task_of_the_users_own(tmp_path):
    folder = environment(tmp_path / "packages", "audit")
    (folder / "jax").unlink()
    succeeds(folder, "-m", "fedavot", "sample-log", "sample", "--days", "2")
    log = tmp_path / "packages-work" / "sample" / "log.csv"
    succeeds(folder, "-m", "fedavot", "audit", str(log), "--out", "report")
    found = json.loads((tmp_path / "packages-work" / "report" / "findings.json").read_text())
    assert "fedavot-steady" in [one["rule"] for one in found["replay"]["trained"]]
    done = run(folder, "-m", "fedavot", "audit", str(log), "--task", str(log))
    assert done.returncode == 2
    assert "fedavot[training]" in done.stderr


def test_the_extra_training_alone_trains(tmp_path):
    folder = environment(tmp_path / "packages", "training")
    succeeds(folder, "-c", CORE)
    succeeds(folder, "-c", TRAINING)


def test_the_extra_flower_alone_imports_the_strategy(tmp_path):
    folder = environment(tmp_path / "packages", "flower")
    succeeds(folder, "-c", "import fedavot.flower; fedavot.flower.FedAVOT")


def test_the_extra_experiments_alone_reproduces(tmp_path):
    folder = environment(tmp_path / "packages", "experiments")
    assert "FedAVOT" in succeeds(folder, "-m", "fedavot", "reproduce", "alignment")


def test_everything_is_in_the_extra_all():
    every = set(closure(EXTRAS["all"]))
    for extra in ("training", "cli", "audit", "experiments", "flower"):
        assert set(closure(EXTRAS[extra])) <= every
