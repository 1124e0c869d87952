"""The exact answers that the attacks compare with are right themselves."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from attacks import references
from attacks.problems import KINDS, Style, generate
from attacks.references import Answer, Listed


def hall(importance, masses):
    """Return both maxima, set by set, in plain fractions."""
    total, wanted = sum(masses.values()), [Fraction(value) for value in importance]
    deficiency = Fraction(0)
    ratio: Fraction | None = Fraction(1)
    for size in range(1, len(wanted) + 1):
        for clients in itertools.combinations(range(len(wanted)), size):
            bits = references.as_set(clients)
            covered = Fraction(sum(m for cohort, m in masses.items() if cohort & bits), total)
            mine = sum((wanted[client] for client in clients), Fraction(0)) / sum(wanted)
            deficiency = max(deficiency, mine - covered)
            if mine > 0 and ratio is not None:
                ratio = max(ratio, mine / covered) if covered else None
    return Answer(deficiency, ratio)


@pytest.mark.parametrize("seed", range(40))
def test_the_references_flows_agree_with_trying_every_set(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 7))
    cohorts = [rng.permutation(count)[: rng.integers(1, 4)].tolist() for _ in range(6)]
    masses = references.listed(cohorts, 10.0 ** rng.uniform(-9, 0, 6))
    importance = rng.choice([0.0, 0.1, 1.0], count)
    importance[0] = 0.3
    expected = hall(importance, masses)
    assert Listed(importance, masses).answer == expected
    monkeypatch.setattr(references, "MOST_CLIENTS", 0)
    assert Listed(importance, masses).answer == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_references_prefixes_agree_with_a_list(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 7))
    importance = rng.choice([0.0, 0.1, 0.5, 1.0], count)
    importance[0] = 0.3
    size = int(rng.integers(1, count + 1))
    by_size = references.uniform_prefixes(importance.tolist(), size).answer
    assert by_size == Listed(importance, references.uniform(count, size)).answer
    chances = rng.choice([0.0, 0.25, 0.7, 1.0], count)
    chances[-1] = 0.5
    independent = references.independent_prefixes(importance.tolist(), chances.tolist()).answer
    assert independent == Listed(importance, references.independent(chances.tolist())[0]).answer


@pytest.mark.parametrize("kind", KINDS)
def test_a_reference_is_of_the_law_it_comes_with(kind):
    rounding = 1e-12
    for seed in range(20):
        rng = np.random.default_rng(seed)
        problem = generate(rng, kind, Style(orders=200))
        reference = problem.setting.reference(problem.importance)
        if reference is None:
            continue
        clients = np.flatnonzero(rng.random(problem.importance.size) < 0.4)
        covered = float(reference.coverage(references.as_set(clients)))
        assert problem.setting.law.coverage(clients) == pytest.approx(covered, abs=rounding)
