"""Imports point one way, the public namespace is what it says, and importing stays light."""

import ast
import functools
import subprocess
import sys
import types
from pathlib import Path

import pytest

import fedavot

ROOT = Path(fedavot.__file__).parent
LEFT_TO_RIGHT = (
    *(
        "errors",
        "_checks",
        "_clients",
        "_reading",
        "_files",
        "_models",
    ),
    *("_simplex", "_incidence", "importance"),
    "laws",
    *("certificate", "alignment", "solve", "feasibility"),
    *("online", "selection"),
    *("rules", "aggregator", "training", "audit", "experiments", "flower", "cli"),
)
HEAVY = ("matplotlib", "polars", "flwr", "sklearn", "jax", "scipy.optimize")
MODULES = {
    ".".join(("fedavot", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(ROOT.rglob("*.py"))
}


@functools.cache
def imports_of(name):
    """Return the library's modules that a module names in any import, inner ones included."""
    found = set()
    package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            steps = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(steps if node.level else []), *filter(None, [node.module])])
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return {module for module in found if module in MODULES and module != name}


def rank(name):
    return LEFT_TO_RIGHT.index(name.split(".")[1])


def reachable(name):
    """Return every module that importing this one brings along by name."""
    seen, waiting = set(), [name]
    while waiting:
        for module in imports_of(waiting.pop()) - seen - {"fedavot"}:
            seen.add(module)
            waiting.append(module)
    return seen


INNER = sorted(set(MODULES) - {"fedavot", "fedavot.__main__"})


def test_the_imports_of_a_module_are_found_wherever_they_stand():
    assert "fedavot.errors" in imports_of("fedavot._checks")
    assert "fedavot.solve.variance" in imports_of("fedavot.solve._align")
    assert "fedavot._incidence" in reachable("fedavot.alignment")


@pytest.mark.parametrize("name", INNER)
def test_imports_only_point_left(name):
    outside = {other for other in imports_of(name) if other.split(".")[:2] != name.split(".")[:2]}
    if rank(name) <= rank("fedavot.selection"):
        assert "fedavot" not in outside
    # What builds on the core may take its public names from the top.
    assert all(rank(other) < rank(name) for other in outside - {"fedavot"})


@pytest.mark.parametrize("name", INNER)
def test_no_module_imports_itself_by_way_of_others(name):
    assert name not in reachable(name)


def test_verifying_a_certificate_needs_no_solver():
    solvers = {"fedavot.feasibility", "fedavot.online", "fedavot.alignment"}
    brought = reachable("fedavot.certificate")
    assert brought
    assert not brought & solvers
    assert not any(name.startswith("fedavot.solve") for name in brought)


def test_all_is_the_public_namespace():
    loaded = {name.split(".")[1] for name in MODULES if name.count(".")}
    documented_modules = {"errors", "importance"}
    public = {
        name
        for name, value in vars(fedavot).items()
        if not name.startswith("_")
        and not (
            isinstance(value, types.ModuleType)
            and name in loaded
            and name not in documented_modules
        )
    }
    assert public == set(fedavot.__all__)
    assert list(fedavot.__all__) == sorted(fedavot.__all__)


def test_importing_the_library_loads_nothing_heavy():
    code = f"import sys, fedavot; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT.parent), "PATH": ""},
    )
    assert done.stdout.strip() == "[]"
