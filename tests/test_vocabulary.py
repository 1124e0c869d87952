"""One word, one meaning: in the public API, in options, in configurations and in saved files.

`SENSES` has the kinds of thing that belong to the one meaning which the glossary gives a word.
"""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import fedavot as fa
from fedavot import audit, cli, flower, rules, selection, training
from fedavot.experiments import keys, studies
from fedavot.training import mnist, partition
from fedavot.training.tasks import classifiers, linear
from uses import (
    of_class,
    of_command,
    of_configuration,
    of_document,
    of_function,
    of_package,
)

GLOSSARY = Path(__file__).parents[1] / "docs" / "glossary.md"
PUBLIC = (
    *(fa, fa.importance, selection, rules, training, audit, flower, studies),
    *(classifiers, linear, mnist, partition),
)
MEMBERS = {"array", "names", "indices"}
SENSES = {
    "attained": {"array", "number"},
    "clients": MEMBERS,
    "cohort": MEMBERS | {"method"},
    "cohort_size": {"count"},
    "coverage": {"method", "number"},
    "deficiency": {"number", "Estimate"},
    "deficient": MEMBERS | {"Reached"},
    "effective_cohort_size": {"number"},
    "iterations": {"count"},
    "expected_weights": {"method"},
    "feasible": {"flag"},
    "from_state": {"method"},
    "load_state_dict": {"method"},
    "gap": {"number", "Estimate"},
    "hall_ratio": {"number", "Estimate"},
    # By client, by name, in a file, by a word such as "examples"; or that of one client or group.
    "importance": {"array", "by name", "path", "text", "number"},
    "inclusion": {"array", "method", "number"},
    "law": {"Law", "SolvableLaw", "text"},
    "levels": {"array"},
    # Of an own training loop: as its optimiser calls it.
    "lr": {"number"},
    "max_iter": {"count"},
    "n_clients": {"count"},
    "objective": {"text"},
    "potentials": {"array"},
    "progress": {"function"},
    "residual": {"number"},
    "rng": {"Generator"},
    "rounds": {"count", "array"},
    "rule": {"Rule", "RuleName", "text"},
    "seed": {"count"},
    "size": {"count"},
    "softness": {"number"},
    "state_dict": {"method"},
    "status": {"Status", "text"},
    "step": {"number", "function"},
    "tol": {"number"},
    # Also by a word such as "equal", or by the name of a column.
    "weights": {"array", "by name", "method", "text"},
}
# Words for things that have another name here.
BANNED = {
    *("evaluations", "n_iter", "names", "client_names", "client_ids", "num_clients"),
    *("tv", "l1", "total_variation", "learning_rate", "eta"),
    *("k", "n_members", "clients_per_round", "callback", "notify", "random_state"),
}
OLD_RULES = {"uniform", "ht", "snipw", "p-normalised"}
STUDY = """
[task]
kind = "heterogeneous-regression"
n_clients = 4
n_features = 2
examples = 3
[availability]
law = "uniform-cohorts"
cohort_size = 2
[training]
rounds = 4
step = 0.05
seeds = 1
[[rules]]
name = "fedavg"
[[rules]]
name = "fedavot"
"""


def problems(uses):
    """Return what contradicts the vocabulary, in words."""
    found = set()
    for word, place, kinds in uses:
        # Groups and columns have names too; other words are foreign in every compound.
        if word.lower() in BANNED or (BANNED - {"names"}) & set(word.lower().split("_")):
            found.add(f"{place}: {word} has another name here")
        wrong = kinds - SENSES.get(word, kinds)
        if wrong:
            found.add(f"{place}: {word} is of kind {', '.join(sorted(wrong))}")
    return sorted(found)


def everything_public():
    sections = {"top": keys.TOP, "states": keys.STATE, **keys.TABLES}
    tables = {name: keys.places(table) for name, table in sections.items()}
    return [
        *(use for package in PUBLIC for use in of_package(package)),
        *of_command(cli.main),
        *of_configuration(tables),
    ]


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Return one of each JSON file that the library writes, and the columns of its table."""
    folder = tmp_path_factory.mktemp("documents")
    shares = {"berlin": 0.5, "lyon": 0.3, "porto": 0.2}
    law = fa.UniformCohorts(3, 2, clients=list(shares))
    fa.align(shares, law).save(folder / "alignment.json")
    fa.OnlineAligner(shares, softness=0).save(folder / "online.json")
    fa.OnlineAligner(shares).save(folder / "soft.json")
    first = flower.Round(round=1, available=["a"], asked=["a"], replied=["a"], weights={"a": 1.0})
    (folder / "flower.json").write_text(first.line(), encoding="utf-8")
    sample = audit.write_sample(folder / "sample", days=4, n_clients=20)
    found = audit.federation_of(audit.read_log(sample.log), importance=sample.importance)
    audit.write_audit(audit.audit(found), folder / "audit")
    (folder / "tiny.toml").write_text(STUDY, encoding="utf-8")
    run = ["simulate", str(folder / "tiny.toml"), "--out", str(folder / "study")]
    ran = CliRunner().invoke(cli.main, run)
    assert ran.exit_code == 0, ran.output
    written = {
        path.relative_to(folder).as_posix(): json.loads(path.read_text("utf-8"))
        for path in sorted(folder.rglob("*.json"))
    }
    with (folder / "audit" / "clients.csv").open(encoding="utf-8", newline="") as stream:
        header = next(csv.reader(stream))
    return written | {"audit/clients.csv": dict.fromkeys(header)}


def uses_in(documents):
    return [use for name, content in documents.items() for use in of_document(content, name)]


def values_of(content, wanted):
    """Return the values of every key that is wanted, at any depth."""
    if isinstance(content, list):
        return [value for each in content for value in values_of(each, wanted)]
    if not isinstance(content, dict):
        return []
    own = [value for key, value in content.items() if wanted(key)]
    return own + [value for each in content.values() for value in values_of(each, wanted)]


def table(heading):
    """Return the rows of the glossary's table under a heading, as lists of cells."""
    section = GLOSSARY.read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def coded(*cells):
    return re.findall(r"`([^`]+)`", " ".join(cells))


def test_the_public_api_and_the_options_use_each_word_in_one_sense():
    assert problems(everything_public()) == []


def test_saved_files_use_each_word_in_one_sense(documents):
    assert len(documents) >= 8
    assert problems(uses_in(documents)) == []


def test_a_gap_in_a_file_is_a_fraction(documents):
    found = values_of(list(documents.values()), lambda key: "gap" in key.split("_"))
    gaps = np.hstack([gap for gap in found if isinstance(gap, float | list)])
    assert gaps.size > 5
    assert np.all((gaps >= 0.0) & (gaps <= 1.0))


def test_contradictions_are_found_where_there_are_some():
    def careless(clients: int, names: list[str], n_iter: int, gap: float): ...

    class Careless:
        def learning_rate(self, state: dict[str, int]): ...

    Careless.learning_rate.__module__ = "fedavot"
    assert problems(of_function(careless, "here")) == [
        "here: clients is of kind count",
        "here: n_iter has another name here",
        "here: names has another name here",
    ]
    assert problems(of_class(Careless, "here")) == ["here: learning_rate has another name here"]
    assert problems(of_document([{"levels": "two", "tv": 0.1}], "file")) == [
        "file: levels is of kind text",
        "file: tv has another name here",
    ]


def test_the_glossary_has_every_word_of_the_vocabulary_and_the_code_uses_it(documents):
    words = [coded(row[0])[0] for row in table("Names in code, files and options")]
    assert words == sorted(SENSES)
    used = {use.word for use in (*everything_public(), *uses_in(documents))}
    assert [word for word in words if word not in used] == []


def test_the_glossary_lists_the_words_that_are_not_used():
    rows = table("Words we do not use")
    assert set(coded(*(row[0] for row in rows))) == BANNED | OLD_RULES
    assert set(coded(*(row[1] for row in rows))) <= {*SENSES, *rules.RuleName}


def test_the_glossary_has_every_rule_with_its_label():
    listed = [(coded(row[0])[0], row[1]) for row in table("Rules")]
    assert listed == [(rule.value, rule.label) for rule in rules.RuleName]
