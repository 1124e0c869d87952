"""What is wrong is refused with one error of the library's own that names the value: tables.

One table per public function: the argument, and what the message must mention. Warnings are errors
here, so that a NumPy warning on the way to the error fails the test as well.
"""

from typing import Any

import numpy as np
import pytest

import fedavot as fa
from fedavot import errors, importance
from fedavot.rules import Known, build

nan, inf = np.nan, np.inf
RNG = np.random.default_rng(0)
LAW = fa.UniformCohorts(3, 2)
PAIRS = fa.Cohorts([[0, 1], [1, 2]])
CITIES = ("berlin", "porto", "lyon")
SHARES = {"berlin": 0.5, "porto": 0.3, "lyon": 0.2}
NAMED = fa.UniformCohorts(3, 2, clients=CITIES)
P = [0.4, 0.3, 0.3]
LAWS = {
    "cohorts": PAIRS,
    "uniform": LAW,
    "independent": fa.IndependentClients([0.5, 0.2, 1.0]),
    "successive": fa.SuccessiveDraws([1.0, 2.0, 3.0], 2),
    "mixture": fa.Mixture([LAW, fa.UniformCohorts(3, 1)], [0.5, 0.5]),
}

IMPORTANCE = [
    ([0.6, -0.1, 0.5], r"client 1 is -0\.1"),
    ([0.5, 0.5, nan], "client 2 is nan"),
    ([0.5, 0.5, 1e-7], r"sums to 1\.0000001"),
    ([0.0, 0.0, 0.0], "0 for all of 3 entries"),
    ([0.5, 0.5], "2 entries, but there are 3 clients; .*n_clients"),
    ([], "has no entries"),
    ([[0.5, 0.25, 0.25]], r"found shape \(1, 3\)"),
    (["a", "b", "c"], "'a'"),
    ([0.4, "0.3", 0.3], r"client 1 is '0\.3'"),
    ([0.5, 0.5, None], "client 2 is None"),
    ([[0.5], 0.25, 0.25], "sequence of numbers"),
    ({"a": 1.0}, "by client name, but the clients have no names"),
]
BY_NAME = [
    ({"berlin": 0.5, "porto": 0.5}, "no entry for 'lyon'"),
    ({"berlin": 0.5, "porto": 0.3, "lion": 0.2}, "'lion'; did you mean 'lyon'"),
    ({"berlin": 0.5, "porto": 0.7, "lyon": -0.2}, r"client 'lyon' is -0\.2"),
]
OPTIONS = [
    ({"tol": nan}, "tol is nan"),
    ({"tol": "tight"}, "tol must be a number, found 'tight'"),
    ({"max_iter": 0}, "max_iter is 0"),
    ({"max_iter": 10.5}, r"max_iter must be an integer, found 10\.5"),
    ({"softness": nan}, "softness is nan"),
    ({"objective": "variance", "method": "ipfp"}, "'ipfp'"),
    ({"objective": "variance", "softness": 1.0}, "softness.*'entropy'"),
]
NAMES = [
    (["a", "b"], "2 names for 3 clients"),
    (["a", "b", 3], "found 3"),
    (["a", "b", ""], "found ''"),
    (["a", "b", "a"], "the name 'a' more than once"),
    ("abc", "found the text 'abc'"),
]
COHORTS = [
    ([[0, 1], [], [2]], "cohort 1 is empty"),
    (np.empty((3, 0), dtype=np.int64), "cohort 0 is empty"),
    ([[0, 1], [2, 1, 2]], "cohort 1 has client 2 more than once"),
    ([[0], [1, -1]], "cohort 1 has client -1"),
    ([[0, 1.0]], "integer client indices, found float64"),
    ([["a", "b"]], "integer client indices, found <U1"),
    ([0, 1], "cohort 0 is not a sequence of client indices"),
    ([[0, 1], [1, [0, 2]]], "cohort 1 is not a sequence of client indices"),
    ([[0, 2**31]], "client index 2147483648"),
    ({(0, 1): 0.9, (2,): 0.1}, "mapping"),
]
PROBABILITIES = [
    ([1.5, -0.5], r"cohort 1 is -0\.5"),
    ([nan, 1.0], "cohort 0 is nan"),
    ([1.0], "1 probabilities for 2 cohorts"),
    ([[0.5, 0.5]], "one dimension"),
    (["a", "b"], "cohort 0 is 'a'"),
]
LOGS = [
    (([1, 2], [0]), r"\(2,\).*\(1,\)"),
    (([[1], [2]], [[0], [1]]), r"rounds .*\(2, 1\)"),
    (([], []), "no cohorts were given"),
    ((["a", "a"], [3, 3]), "round 'a' has client 3 more than once"),
    ((["a", "b"], [0.0, 1.0]), "integer client indices, found float64"),
    (([None, "a"], [0, 1]), "rounds"),
    (([1, 1], ["lyon", 1]), "mixes names and indices"),
]
INDEPENDENT = [
    ([-0.1, 0.5], r"client 0 is -0\.1"),
    ([0.5, 0.2, nan], "client 2 is nan"),
    ([], "no client is ever available"),
    ([[0.5, 0.5]], r"found shape \(1, 2\)"),
    (["often"], "'often'"),
]
RATES = [
    ([nan, 1.0], "rate of client 0 is nan"),
    ([1.0, 0.0], "cohorts of 2 .* found 1"),
    ([[1.0, 2.0]], "one dimension"),
    (["fast", "slow"], "'fast'"),
]
DRAWS = [
    ({"size": 2.5}, r"size must be an integer, found 2\.5"),
    ({"size": 5, "draws": 0}, "draws is 0"),
    ({"size": 5, "draws": "many"}, "draws must be an integer, found 'many'"),
]
MIXTURES = [
    (([LAW, fa.UniformCohorts(4, 2)], [0.5, 0.5]), "state 1 has 4 clients, state 0 has 3"),
    (([LAW, "weekend"], [0.5, 0.5]), "state 1 is 'weekend'"),
    (([LAW], [0.5, 0.5]), "2 probabilities for 1 laws"),
    (([LAW, LAW], [0.5, 0.6]), r"sums to 1\.1, not 1"),
    (([], []), "has no entries"),
]
POTENTIALS = [
    ([0.0, nan, 0.0], "potential of client 1 is nan"),
    ([0.0, 0.0], "potentials has 2 entries for 3 clients"),
    ("abc", "potentials"),
]
LEVELS = [
    ([0, 1], r"levels must be 3 integers, found int64 of shape \(2,\)"),
    ([0.0, 1.0, 1.0], "levels must be 3 integers, found float64"),
    ([0, [1], 2], "levels must be 3 integers"),
]
SETS = [
    ([0, 3], "has client 3, but clients run from 0 to 2"),
    ([-1], "has client -1"),
    ([0.5], "integer indices, found float64"),
    (["a"], "client 'a', but the clients have no names"),
    ([0, [1]], "the set must be"),
]
MEMBERS = [
    ([0, 3], "has client 3, but clients run from 0 to 2"),
    ([-1, 0], "has client -1"),
    ([1, 0, 1], "has client 1 more than once"),
    ([0.0, 1.0], "integer indices, found float64"),
    (["a"], "client 'a', but the clients have no names"),
    ([[0, 1]], r"found shape \(1, 2\)"),
    (None, "found None"),
]
MEMBERS_BY_NAME = [
    (["berlin", "proto"], "'proto'; did you mean 'porto'"),
    (["berlin", "oslo"], "'oslo'; the clients are 'berlin', 'porto' and 'lyon'$"),
    (["berlin", "berlin"], "'berlin' more than once"),
    (["berlin", 1], "mixes names and indices, such as 'berlin' and 1"),
    ("berlin", "found the text 'berlin'"),
    ({"berlin", "porto"}, "must have an order"),
]
EXAMPLES = [
    ([3, -1], r"example count of client 1 is -1\.0"),
    ([nan, 1], "example count of client 0 is nan"),
    ([[1, 2]], r"one dimension, found shape \(1, 2\)"),
    (["many"], "client 0 is 'many'"),
    ({"berlin": 3, "porto": 4}, "found a mapping"),
]
GROUPS = [
    ((["a"], {"a": 0.5, "b": 0.5}), r"group 'b' has target share 0\.5 and no"),
    ((["a", "z"], {"a": 1.0}), "client 1 is in group 'z', which has no"),
    ((["a"], {"a": 0.9}), r"target share sums to 0\.9"),
    (([["a"]], {"a": 1.0}), "hashable label"),
    ((["a"], [1.0]), r"targets must be a mapping to numbers, found \[1\.0\]"),
    ((["a", "b"], {"a": 0.5, "b": 0.5}, [1, 0]), r"group 'b' has .* 0\.5 .* within is 0"),
    ((["a", "a"], {"a": 1.0}, [1]), "within has 1 entries, but groups has 2 clients"),
]
MAPPINGS = [
    (({"a": None, "b": 1}, ["b", "a"]), "client 'a' is None"),
    (({"a": 1}, ["a", "b"]), "no entry for 'b'"),
    (({"a": 1, "b": 1}, ["a"]), "unknown client, 'b'"),
    (({"a": 1}, ["a", "a"]), "'a' more than once"),
    (({"a": -1, "b": 2}, ["b", "a"]), r"of client 'a' is -1\.0"),
    (({"a": 0}, ["a"]), "the mapping's numbers are all zero"),
    (({}, [str(i) for i in range(9)]), "'4' and 4 more"),
    (([1.0], ["a"]), "mapping must be"),
    (({"a": 1.0}, None), "clients"),
]
OPTION, INPUT = errors.OptionError, errors.InputError
CALLS: Any = [
    (OPTION, lambda: fa.UniformCohorts(3, 0), "size is 0"),
    (OPTION, lambda: fa.UniformCohorts(3, 1.5), r"size .* found 1\.5"),
    (OPTION, lambda: fa.Cohorts([[0]], n_clients=0), "n_clients is 0"),
    (OPTION, lambda: fa.Cohorts([[0]], n_clients=2.5), r"n_clients .* found 2\.5"),
    (OPTION, lambda: importance.tempered([0.5, 0.5], exponent=nan), "exponent is nan"),
    (OPTION, lambda: importance.uniform(0), "n_clients is 0; it must be at least 1"),
    (OPTION, lambda: fa.select([1.0], 1.5, RNG), "integer, found 1.5"),
    (OPTION, lambda: fa.select(P, 1, np.random.RandomState(0)), "must be a numpy.random.Generator"),
    (INPUT, lambda: fa.select([0.5, 0.4], 1, RNG), "weight sums to 0.9"),
    (INPUT, lambda: fa.select([1.5, -0.5], 1, RNG), r"client 1 is -0\.5"),
    (INPUT, lambda: fa.select([0.5, nan], 1, RNG), "client 1 is nan"),
    (INPUT, lambda: fa.select([], 1, RNG), "weight has no entries"),
    (errors.RuleError, lambda: build(None, Known(P, LAW)), "None"),
    *(
        (OPTION, lambda seed=seed: fa.SuccessiveDraws(np.ones(60), 5, seed=seed), "seed")
        for seed in (-1, 2**128, 1.0, "1", None)
    ),
    (INPUT, lambda: fa.IndependentClients([0.5, 2.0], clients=["a", "b"]), r"'b' is 2\.0"),
    (INPUT, lambda: fa.SuccessiveDraws([1, -1], 1, clients=["a", "b"]), r"'b' is -1\.0"),
    (INPUT, lambda: fa.Cohorts([["lyon", "lyon"]], clients=CITIES), "'lyon' more than once"),
    (INPUT, lambda: fa.Cohorts([["lyon"], ["lion"]], clients=CITIES), "'lion'; did you"),
    (INPUT, lambda: fa.Cohorts([[0], [3]], n_clients=3), "cohort 1 has client 3, .* 0 to 2"),
]


def tables():
    """Yield every refusal: the call, its argument, the error, and what its message must match."""

    def every(name, cases, error, call):
        for at, (value, match) in enumerate(cases):
            yield pytest.param(call, value, error, match, id=f"{name}-{at}")

    wrong = errors.ImportanceError
    for ask in (fa.align, fa.certify):
        yield from every(f"{ask.__name__}", IMPORTANCE, wrong, lambda p, ask=ask: ask(p, LAW))
        yield from every(f"{ask.__name__} names", BY_NAME, wrong, lambda p, ask=ask: ask(p, NAMED))
        classes = [(fa.UniformCohorts, "class UniformCohorts; pass an instance")]
        yield from every(
            f"{ask.__name__} law", classes, errors.LawError, lambda law, ask=ask: ask(P, law)
        )
    yield from every("options", OPTIONS, errors.OptionError, lambda o: fa.align(P, PAIRS, **o))
    implicit = [(law, type(law).__name__) for name, law in LAWS.items() if name != "cohorts"]
    yield from every(
        "variance",
        [case for case in implicit if not isinstance(case[0], fa.SuccessiveDraws)],
        errors.OptionError,
        lambda law: fa.align(P, law, objective="variance"),
    )
    for name, call in {
        "uniform": lambda names: fa.UniformCohorts(3, 2, clients=names),
        "align": lambda names: fa.align(P, LAW, clients=names),
        "certify": lambda names: fa.certify(P, LAW, clients=names),
        "online": lambda names: fa.OnlineAligner(P, step=1.0, clients=names),
    }.items():
        yield from every(f"names of {name}", NAMES, errors.OptionError, call)
    others: Any = (
        ("Cohorts", COHORTS, fa.Cohorts),
        ("probabilities", PROBABILITIES, lambda q: fa.Cohorts([[0, 1], [1, 2]], q)),
        ("from_log", LOGS, lambda columns: fa.Cohorts.from_log(*columns)),
        ("IndependentClients", INDEPENDENT, fa.IndependentClients),
        ("SuccessiveDraws", RATES, lambda rates: fa.SuccessiveDraws(rates, 2)),
        ("Mixture", MIXTURES, lambda arguments: fa.Mixture(*arguments)),
    )
    for name, cases, call in others:
        yield from every(name, cases, errors.InputError, call)
    yield from every(
        "draws", DRAWS, errors.OptionError, lambda o: fa.SuccessiveDraws(np.ones(60), **o)
    )
    for name, law in LAWS.items():
        yield from every(f"potentials {name}", POTENTIALS, errors.OptionError, law.expected_weights)
        yield from every(
            f"levels {name}",
            LEVELS,
            errors.OptionError,
            lambda levels, law=law: law.expected_weights(np.zeros(3), levels),
        )
        yield from every(f"coverage {name}", SETS, errors.CohortError, law.coverage)
        yield from every(
            f"sample {name}",
            [(-1, "rounds is -1")],
            errors.OptionError,
            lambda rounds, law=law: law.sample(RNG, rounds),
        )
    yield from every("weights", MEMBERS, errors.CohortError, fa.align(P, PAIRS).weights)
    yield from every(
        "weights by name", MEMBERS_BY_NAME, errors.CohortError, fa.align(SHARES, NAMED).weights
    )
    yield from every("by_examples", EXAMPLES, wrong, importance.by_examples)
    yield from every(
        "by_group",
        GROUPS,
        wrong,
        lambda arguments: importance.by_group(
            *arguments[:2], within=arguments[2] if len(arguments) > 2 else None
        ),
    )
    yield from every("from_mapping", MAPPINGS, wrong, lambda pair: importance.from_mapping(*pair))
    for at, (error, call, match) in enumerate(CALLS):
        yield pytest.param(lambda call: call(), call, error, match, id=f"calls-{at}")


@pytest.mark.parametrize(("call", "value", "error", "match"), list(tables()))
def test_what_is_wrong_is_named(call, value, error, match):
    with pytest.raises(error, match=match):
        call(value)


def test_every_error_is_of_the_one_tree():
    kinds = {e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)}
    kinds.remove(errors.FedavotWarning)  # shown, not raised
    assert len(kinds) > 5
    assert all(issubclass(error, errors.FedavotError) for error in kinds)


@pytest.mark.parametrize("slack", [1e-9, -1e-9])
def test_rounding_in_the_sum_of_the_importance_is_divided_out(slack):
    wanted = fa.align(np.array(P) * (1.0 + slack), LAW)
    assert wanted.importance.sum() == pytest.approx(1.0, abs=1e-15)


def test_too_many_sampled_pairs_are_refused_with_the_estimate():
    with pytest.raises(errors.TooLargeError, match=r"1,000,000,000,000 cohorts of 2 .* GB"):
        fa.SuccessiveDraws(np.ones(1_000_000), 2, draws=10**12)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: fa.Cohorts([[0, 1]], n_clients=1_000_000),
        lambda: fa.UniformCohorts(1_000_000, 2).inclusion(),
        lambda: fa.UniformCohorts(1_000_000, 2).coverage([0]),
    ],
)
def test_more_clients_than_memory_are_refused_with_the_estimate(monkeypatch, ask):
    monkeypatch.setattr("fedavot._checks._available_bytes", lambda: 1e6)
    with pytest.raises(errors.TooLargeError, match="GB"):
        ask()
