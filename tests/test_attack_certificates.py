"""The attack on certificates finds nothing here, and would find what it looks for."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from attacks import certificates, references
from attacks.certificate_problems import KINDS, generate
from attacks.references import Answer, Listed

import fedavot as fa
from fedavot.certificate import Certificate


def test_a_slice_of_the_attack_finds_nothing():
    assert certificates.main(["--problems", "60", "--tamperings", "600"]) == 0


@pytest.mark.parametrize("kind", ["explicit", "uniform", "independent"])
def test_a_verification_that_accepts_everything_is_found_out(kind, monkeypatch, capsys):
    monkeypatch.setattr(Certificate, "verify", lambda *_, **__: True)
    assert certificates.main(["--problems", "4", "--tamperings", "400", "--only", kind]) == 1
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if "ACCEPTED THOUGH FALSE" in line)
    table = lines[lines.index(header) + 1 :]
    for field in ("feasible", "deficiency", "hall_ratio", "deficient", "combination", "problem"):
        row = next(line for line in table if line.startswith(field))
        rejected, _, accepted, errors = (int(number) for number in row.split()[1:])
        assert rejected == errors == 0
        assert accepted > 0


def test_a_verification_that_accepts_nothing_is_found_out(monkeypatch, capsys):
    monkeypatch.setattr(Certificate, "verify", lambda *_, **__: False)
    assert certificates.main(["--problems", "5", "--tamperings", "0"]) == 1
    assert "not verified: " in capsys.readouterr().out


def test_an_error_of_certify_is_reported_with_the_problem(monkeypatch, capsys):
    def fail(importance, law):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(fa, "certify", fail)
    assert certificates.main(["--problems", "1", "--tamperings", "0", "--start", "7"]) == 1
    printed = capsys.readouterr().out
    assert "problem 7" in printed
    assert "ZeroDivisionError: on purpose" in printed


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
        problem = generate(rng, kind)
        if problem.setting.referee is None:
            continue
        reference = problem.setting.referee(problem.importance)
        clients = np.flatnonzero(rng.random(problem.importance.size) < 0.4)
        covered = float(reference.coverage(references.as_set(clients)))
        assert problem.setting.law.coverage(clients) == pytest.approx(covered, abs=rounding)
