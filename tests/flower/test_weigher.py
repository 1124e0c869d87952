"""Importance and weights go by client name, wherever they come from."""

import json

import numpy as np
import pytest
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    FedMedian,
    FedTrimmedAvg,
    FedXgbBagging,
    Krum,
)
from grid import everybody, federation, only, record_of
from hypothesis import given
from hypothesis import strategies as st

import fedavot as fa
from fedavot.errors import FileFormatError, ImportanceError, InputError, OptionError
from fedavot.flower import Admission, FedAVOT, Weighting
from fedavot.flower.worth.learning import limited, plausible
from fedavot.flower.worth.weigher import Weigher
from sealing import sealed

MODEL = {"w": np.zeros(1)}
LAW = fa.IndependentClients([0.9, 0.6, 0.5])
NAMES = ["0", "1", "2"]


AGREE = 1e-9
"""Rounding error of a gap of zero."""


def update(arrays, config, node):
    return arrays, {"num-examples": 1}


def uneven(arrays, config, node):
    return arrays, {"num-examples": 1 + int(node["partition-id"])}


def run(n_clients, cohorts, *, update=update, **options):
    seen = []
    strategy = FedAVOT(everybody(), on_round=seen.append, **options)
    grid = federation(n_clients, update, fate=only(cohorts))
    strategy.start(grid, record_of(MODEL), len(cohorts))
    return strategy, seen


def test_a_mapping_may_be_on_any_scale():
    for scale in (1e-300, 1.0, 1e300):
        strategy = FedAVOT(everybody(), importance={"a": 3 * scale, "b": scale})
        assert strategy.importance == pytest.approx({"a": 0.75, "b": 0.25})


def test_a_mapping_of_the_largest_numbers_does_not_overflow():
    strategy = FedAVOT(everybody(), importance={"a": 1.5e308, "b": 1.5e308})
    assert strategy.importance == pytest.approx({"a": 0.5, "b": 0.5})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "client,importance\nlyon,3\nporto,1\n"),
        ("a.json", '{"lyon": 3, "porto": 1}'),
        ("a.CSV", "client,examples\nlyon,300\nporto,100\n"),
    ],
)
@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_importance_may_be_in_a_file(tmp_path, name, text, kind):
    path = tmp_path / name
    path.write_text(text)
    strategy = FedAVOT(everybody(), importance=kind(path))
    assert strategy.importance == {"lyon": 0.75, "porto": 0.25}


def test_uniform_importance_is_over_the_clients_ever_seen():
    grid = federation(4, update)
    grid.nodes[103].online = False
    seen = []

    def appear(record):
        seen.append(dict(strategy.importance))
        grid.nodes[103].online = True

    strategy = FedAVOT(everybody(), on_round=appear)
    assert strategy.importance == {}
    strategy.start(grid, record_of(MODEL), 2)
    assert seen[0] == pytest.approx(dict.fromkeys("012", 1 / 3))
    assert seen[1] == pytest.approx(dict.fromkeys("0123", 1 / 4))


@pytest.mark.parametrize(
    ("importance", "message"),
    [
        ({}, "importance is empty"),
        ({"a": "0.5"}, "importance of client 'a' must be a number, found '0.5'"),
        ({"a": 0, "b": 0}, "importance is 0 for all 2 clients"),
        ({"a": -1, "b": 2}, r"importance of client 'a' is -1\.0"),
        ({"a": float("nan")}, "importance of client 'a' is nan"),
        ({"a": float("inf")}, "importance of client 'a' is inf"),
        ({"a": "much"}, "importance of client 'a' must be a number, found 'much'"),
        ({"a": None}, "importance of client 'a' must be a number, found None"),
        ({"": 1}, "client names must be non-empty text, found ''"),
        ({0: 1}, "client names must be non-empty text, found 0; write '0'"),
        ("unifrom", "importance is 'unifrom'; it must be 'uniform', 'examples', a mapping"),
        ("", "importance is ''; it must be"),
        ([0.5, 0.5], "it must be 'uniform', 'examples', a mapping"),
        (np.array([0.5, 0.5]), "it must be 'uniform', 'examples', a mapping"),
        (None, "importance is None; it must be"),
        (3, "importance is 3; it must be"),
    ],
)
def test_bad_importance_is_refused(importance, message):
    with pytest.raises(ImportanceError, match=message):
        FedAVOT(everybody(), importance=importance)


def test_a_missing_importance_file_is_named(tmp_path):
    with pytest.raises(OSError, match=r"nowhere\.csv"):
        FedAVOT(everybody(), importance=tmp_path / "nowhere.csv")


def test_a_missing_importance_file_is_named_with_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match=rf"{tmp_path}/nowhere\.csv.*begins at {tmp_path}"):
        FedAVOT(everybody(), importance="nowhere.csv")


def test_clients_without_importance_are_refused_by_name_and_not_asked(caplog):
    _, seen = run(3, [[0, 1, 2]] * 2, importance={"0": 1, "2": 1})
    assert [record.asked for record in seen] == [["0", "2"]] * 2
    assert [record.available for record in seen] == [["0", "2"]] * 2
    assert "client '1' has no importance" in seen[0].refused["1"]
    assert any("client '1' has no importance" in it.message for it in caplog.records)


def test_clients_without_importance_may_have_a_default():
    strategy, seen = run(
        3, [[0, 1, 2]], importance={"0": 6, "2": 3}, admission=Admission(unlisted=1.0)
    )
    assert strategy.importance == pytest.approx({"0": 0.6, "2": 0.3, "1": 0.1})
    assert sorted(seen[0].weights) == ["0", "1", "2"]


def test_a_default_of_nothing_lets_clients_in_without_weight():
    _, seen = run(3, [[0, 1, 2]], importance={"0": 6, "2": 3}, admission=Admission(unlisted=0.0))
    assert seen[0].weights == pytest.approx({"0": 2 / 3, "1": 0.0, "2": 1 / 3})


@pytest.mark.parametrize("softness", [0.0, 0.2])
@pytest.mark.parametrize("importance", [{"0": 6, "1": 1, "2": 3}, "examples"])
def test_the_first_weights_are_the_importances_shares_in_the_cohort(importance, softness):
    weighting = Weighting(softness=softness)
    _, seen = run(3, [[0, 2]], update=uneven, importance=importance, weighting=weighting)
    shares = importance if importance != "examples" else {"0": 1, "2": 3}
    whole = shares["0"] + shares["2"]
    first = {"0": shares["0"] / whole, "2": shares["2"] / whole}
    assert seen[0].weights == pytest.approx(first)


def test_with_everybody_there_the_importance_is_met_from_the_first_round_on():
    _, seen = run(3, [[0, 1, 2]] * 5, importance={"0": 6, "1": 1, "2": 3})
    assert all(record.gap < AGREE for record in seen)
    assert seen[-1].weights == pytest.approx({"0": 0.6, "1": 0.1, "2": 0.3})


def test_clients_that_join_start_as_far_from_their_importance_as_the_others_are():
    cohorts = [[0, 1]] * 3 + [[0, 1, 2]]
    _, seen = run(3, cohorts, update=uneven, importance="examples")
    assert seen[2].weights == pytest.approx({"0": 1 / 3, "1": 2 / 3})
    assert seen[3].weights == pytest.approx({"0": 1 / 6, "1": 2 / 6, "2": 3 / 6})


@pytest.mark.parametrize(
    ("importance", "unlisted"),
    [({"a": 1.0, "b": 2.0}, 1e13), ({"a": 1e-300}, 1.0), ({"a": 1.0}, 1e300)],
)
def test_a_default_that_leaves_the_listed_nothing_is_refused(importance, unlisted):
    with pytest.raises(OptionError, match=r"unlisted is .*1e\+12 times"):
        FedAVOT(everybody(), importance=importance, admission=Admission(unlisted=unlisted))


@pytest.mark.parametrize(("importance", "unlisted"), [({"a": 1.0}, 1e11), ({"a": 1e-300}, 1e-290)])
def test_a_default_may_be_far_above_the_listed(importance, unlisted):
    strategy, _ = run(1, [[0]], importance=importance, admission=Admission(unlisted=unlisted))
    assert strategy.importance["0"] == pytest.approx(1.0)
    assert strategy.importance["a"] > 0


@pytest.mark.parametrize("importance", ["uniform", "examples"])
def test_a_default_goes_with_a_mapping_alone(importance):
    with pytest.raises(OptionError, match="unlisted .*mapping"):
        FedAVOT(everybody(), importance=importance, admission=Admission(unlisted=1.0))


def warnings_of(caplog):
    """Return the warnings that are FedAVOT's own."""
    found = [it.message for it in caplog.records if it.levelname == "WARNING"]
    return [message for message in found if message.startswith("FedAVOT")]


def test_listed_clients_that_never_appear_are_named_at_the_end(caplog):
    importance = {"0": 1, "1": 1, "ghost": 2, "nobody": 0}
    run(2, [[0, 1]] * 3, importance=importance)
    (warning,) = [
        it.message for it in caplog.records if "FedAVOT" in it.message and it.levelno > 20
    ]
    assert "0.5 of the importance" in warning
    assert "'ghost'" in warning
    assert "'nobody'" not in warning


def test_there_is_no_warning_if_every_listed_client_appeared(caplog):
    run(2, [[0, 1], [0]], importance={"0": 1, "1": 1})
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("kind", ["Bulyan", "FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum"])
def test_strategies_that_do_not_average_by_weight_are_refused(kind):
    with pytest.raises(OptionError, match=rf"{kind} does not average by weight.*wrap FedAvg"):
        FedAVOT(getattr(flower, kind)())


@pytest.mark.parametrize(
    "strategy",
    [
        FedXgbBagging(),
        DifferentialPrivacyServerSideFixedClipping(FedMedian(), 0.0, 1.0, 2),
        type("Mine", (Krum,), {})(),
        type("Trimmed", (FedTrimmedAvg,), {})(),
    ],
    ids=["trees", "wrapped", "subclass", "another subclass"],
)
def test_weightless_strategies_in_disguise_are_refused(strategy):
    with pytest.raises(OptionError, match="does not average by weight"):
        FedAVOT(strategy)


@pytest.mark.parametrize("strategy", [None, "FedAvg", FedAvg, object()])
def test_what_is_no_strategy_is_refused(strategy):
    with pytest.raises(OptionError, match=r"must be a flwr\.serverapp\.strategy\.Strategy"):
        FedAVOT(strategy)


def test_fedavot_around_fedavot_is_refused():
    with pytest.raises(OptionError, match="the inner one"):
        FedAVOT(FedAVOT(everybody()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"softness": -1}, r"softness is -1\.0"),
        ({"softness": float("nan")}, "softness is nan"),
        ({"step": 0}, r"step is 0\.0; it must be finite and above 0"),
        ({"step": "big"}, "step must be a number"),
        ({"cohort_size": 0}, "cohort_size is 0; it must be at least 1"),
        ({"cohort_size": 2.5}, "cohort_size must be an integer"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**128}, "seed is 3402"),
        ({"seed": 0.5}, "seed must be an integer"),
        ({"clients": ["a"]}, "alignment="),
        ({"weight_limit": 0.5}, "weight_limit is 0.5"),
        ({"weight_limit": float("nan")}, "weight_limit is nan"),
        ({"alignment": "alignment.json"}, "it must be a fedavot.Alignment"),
    ],
)
def test_bad_options_of_weighting_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        Weighting(**options)


def test_the_seed_of_a_weighting_has_up_to_128_bits():
    assert Weighting(seed=2**128 - 1).seed == 2**128 - 1


@pytest.fixture(scope="module")
def alignment():
    return fa.align([0.2, 0.3, 0.5], LAW)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (None, "3 clients of the alignment have no names"),
        (["0", "1"], "2 names for 3 clients"),
        (["0", "1", "1"], "'1' more than once"),
        ([0, 1, 2], "clients must be names.*found 0"),
    ],
)
def test_an_alignment_needs_one_name_per_client(alignment, clients, message):
    with pytest.raises(OptionError, match=message):
        Weighting(alignment=alignment, clients=clients)


def test_an_unconverged_alignment_is_refused_with_the_remedy():
    unfinished = fa.align([0.2, 0.3, 0.5], LAW, max_iter=1)
    assert unfinished.status == "unconverged"
    with pytest.raises(OptionError, match="raise max_iter"):
        Weighting(alignment=unfinished, clients=NAMES)


def test_an_alignments_own_names_are_used():
    named = fa.align([0.2, 0.3, 0.5], LAW, clients=NAMES)
    assert Weighting(alignment=named).clients == tuple(NAMES)
    with pytest.raises(OptionError, match="client 0 is 'a' in clients and '0' in the alignment"):
        Weighting(alignment=named, clients=["a", "1", "2"])


def test_softness_belongs_to_the_alignment_where_there_is_one(alignment):
    with pytest.raises(OptionError, match=r"align\(\.\.\., softness=\.\.\.\)"):
        Weighting(alignment=alignment, clients=NAMES, softness=0.5)


def test_an_alignment_has_its_own_importance(alignment):
    weighting = Weighting(alignment=alignment, clients=NAMES)
    with pytest.raises(OptionError, match="an alignment has its own importance"):
        FedAVOT(everybody(), importance={"0": 1}, weighting=weighting)
    shares = FedAVOT(everybody(), weighting=weighting).importance
    assert shares == pytest.approx({"0": 0.2, "1": 0.3, "2": 0.5})


def test_an_alignments_weights_are_applied_by_name(alignment):
    names = ["2", "0", "1"]  # the alignment's clients, in its order
    cohorts = [[0, 1, 2], [1, 2], [0], [0, 2]]
    _, seen = run(3, cohorts, weighting=Weighting(alignment=alignment, clients=names))
    for record, cohort in zip(seen, cohorts, strict=True):
        places = [names.index(str(client)) for client in cohort]
        assert list(record.weights.values()) == pytest.approx(alignment.weights(places))


def test_the_gap_of_an_alignment_is_counted_like_any(alignment):
    cohorts = [[0, 1, 2], [1, 2], [0], [0, 2]]
    _, seen = run(3, cohorts, weighting=Weighting(alignment=alignment, clients=NAMES))
    total = np.zeros(3)
    for record in seen:
        for name, weight in record.weights.items():
            total[int(name)] += weight
    assert seen[-1].gap == pytest.approx(np.abs(total / 4 - [0.2, 0.3, 0.5]).sum() / 2)


def test_nodes_that_an_alignment_does_not_name_are_refused(alignment):
    _, seen = run(4, [[0, 1, 2, 3]], weighting=Weighting(alignment=alignment, clients=NAMES))
    assert list(seen[0].refused) == ["3"]


def saved(path, alignment, **extra):
    alignment.save(path)
    content = json.loads(path.read_text()) | extra
    path.write_text(sealed(content))
    return path


def test_an_alignment_file_that_names_its_clients_is_all_it_takes(tmp_path, alignment):
    weighting = Weighting.load(saved(tmp_path / "a.json", alignment, clients=NAMES), cohort_size=2)
    _, seen = run(3, [[0, 1, 2]], weighting=weighting)
    assert len(seen[0].asked) == 2
    assert weighting.clients == tuple(NAMES)


@pytest.mark.parametrize(
    ("extra", "error", "message"),
    [
        ({}, FileFormatError, "no client names"),
        ({"clients": NAMES, "format": "x"}, FileFormatError, "holds 'x'"),
    ],
)
def test_an_alignment_file_without_clients_is_refused(tmp_path, alignment, extra, error, message):
    with pytest.raises(error, match=message):
        Weighting.load(saved(tmp_path / "a.json", alignment, **extra))


def test_a_soft_alignment_and_its_online_learning_come_to_the_same_for_equal_importance():
    importance, softness = np.full(3, 1 / 3), 0.3
    exact = fa.align(importance, LAW, softness=softness)
    rng = np.random.default_rng(3)
    weigher = Weigher(
        dict(zip(NAMES, importance.tolist(), strict=True)),
        Weighting(softness=softness, step=0.02),
    )
    given = np.zeros(3)
    cohorts = LAW.sample(rng, 6000)
    for cohort in cohorts:
        names = [NAMES[client] for client in cohort]
        weights = weigher.weights(names)
        weigher.observe(names, weights)
        given[cohort] += weights
    assert np.abs(given / len(cohorts) - exact.attained).sum() / 2 < 0.01
    assert weigher.weights(NAMES) == pytest.approx(exact.weights([0, 1, 2]), abs=0.03)


def test_the_expected_weights_of_a_selection_are_those_of_all_the_available():
    weigher = Weigher({"0": 5.0, "1": 2.0, "2": 2.0, "3": 1.0}, Weighting(cohort_size=2))
    for cohort in (["0", "1"], ["1", "2", "3"], ["0", "3"]):
        weigher.observe(cohort, weigher.weights(cohort))
    available = ["3", "0", "2"]
    rng = np.random.default_rng(0)
    total, n_draws = np.zeros((2, 3)), 4000
    for _ in range(n_draws):
        chosen, shares = weigher.choose(available, rng)
        assert len(chosen) == 2
        assert sum(shares.values()) == pytest.approx(1.0)
        drawn = np.array([shares.get(name, 0.0) for name in available])
        total += [drawn, drawn**2]
    mean = total[0] / n_draws
    error = np.sqrt(np.maximum(total[1] / n_draws - mean**2, 0.0) / n_draws)
    assert (np.abs(mean - weigher.weights(available)) <= 5 * error + 1e-12).all()


def counting(n_known, size):
    """Return a weigher by example counts that knows the first of ten clients, and all ten names."""
    names = [str(i) for i in range(10)]
    weigher = Weigher("examples", Weighting(cohort_size=size))
    weigher.admit(names)
    assert weigher.count({name: 1 + int(name) for name in names[:n_known]}) == {}
    return weigher, names


@pytest.mark.parametrize("n_known", [0, 1, 5, 8])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 9, 12])
def test_the_uncounted_get_half_of_a_selection_and_what_the_counted_leave(size, n_known):
    weigher, names = counting(n_known, size)
    known, n_asked = set(names[:n_known]), min(size, 10)
    n_unknown = []
    for seed in range(200):
        chosen, shares = weigher.choose(names, np.random.default_rng(seed))
        assert shares == {}
        assert len(set(chosen)) == len(chosen) == n_asked
        n_unknown.append(len(set(chosen) - known))
    # Of an odd size the extra place is theirs every other time.
    halves = (size // 2, (size + 1) // 2)
    wanted = {min(max(half, size - n_known), 10 - n_known) for half in halves}
    assert set(n_unknown) == wanted
    if len(wanted) == 2:
        # Five standard errors of 200 tosses.
        assert np.mean(n_unknown) == pytest.approx(size / 2, abs=5 * 0.5 / np.sqrt(200))


def test_every_uncounted_client_is_as_likely_to_be_chosen():
    weigher, names = counting(5, 4)
    drawn = [weigher.choose(names, np.random.default_rng(seed))[0] for seed in range(500)]
    times = np.array([sum(name in chosen for chosen in drawn) for name in names])
    # Two of five, each time; five standard errors.
    assert np.abs(times / 500 - 0.4).max() < 5 * np.sqrt(0.24 / 500)


def test_a_selection_by_counts_comes_to_know_everybody():
    seen = []
    strategy = FedAVOT(
        everybody(),
        importance="examples",
        weighting=Weighting(cohort_size=2),
        on_round=seen.append,
    )
    strategy.start(federation(5, update), record_of(MODEL), 6)
    assert set(strategy.importance) == {"0", "1", "2", "3", "4"}
    assert all(len(record.asked) == 2 for record in seen)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("fate", ["error", "silent", "dead"])
def test_clients_that_always_fail_do_not_keep_the_others_from_being_asked(size, fate):
    seen = []
    strategy = FedAVOT(
        everybody(),
        importance="examples",
        weighting=Weighting(cohort_size=size),
        on_round=seen.append,
    )
    grid = federation(6, update, fate=only([range(2, 6)] * 40, others=fate))
    strategy.start(grid, record_of(MODEL), 40)
    assert set(strategy.importance) == {"2", "3", "4", "5"}
    asked = [name for record in seen[20:] for name in record.asked]
    times = {name: asked.count(name) for name in "012345"}
    assert min(times.values()) >= 1
    assert times["0"] + times["1"] <= 0.75 * len(asked)
    assert sum(bool(record.weights) for record in seen) >= 10


def returning(n_clients, weight_limit, absence=200, softness=0.0, **options):
    """Return the records of a run in which client 0 is away for long, after a first round."""
    everyone = list(range(n_clients))
    cohorts = [everyone, *[everyone[1:]] * absence, *[everyone] * 3]
    weighting = Weighting(softness=softness, step=2.0, weight_limit=weight_limit)
    return run(n_clients, cohorts, importance="uniform", weighting=weighting, **options)[1]


@pytest.mark.parametrize("n_clients", [2, 6, 20])
def test_a_client_that_was_away_for_long_does_not_take_the_round(n_clients):
    limit = Weighting().weight_limit
    seen = returning(n_clients, limit)
    most = limit / (n_clients - 1 + limit)
    assert seen[-3].weights["0"] == pytest.approx(most)
    assert sum(seen[-3].weights.values()) == pytest.approx(1.0)
    unlimited = returning(n_clients, None)
    assert unlimited[-3].weights["0"] > 0.99
    # What the limit holds back is in the gap.
    assert seen[-1].gap > unlimited[-1].gap


def test_by_default_an_absence_raises_weights_by_a_bounded_factor_that_no_limit_has_to_cut():
    n_clients = 20
    seen = returning(n_clients, None, softness=None)[-3].weights
    # At rest ρ (x_i − p·x) is 1 − (mean weight)/p: 1 for the absent, −1/19 for the others.
    most = np.exp((1 + 1 / (n_clients - 1)) / Weighting().price)
    assert seen["0"] / seen["1"] == pytest.approx(most, rel=1e-3)
    assert seen == pytest.approx(returning(n_clients, 10.0, softness=None)[-3].weights)


@pytest.mark.parametrize("softness", [0.3, 1.0])
def test_at_rest_what_a_client_lacks_is_the_price_of_its_weight(softness):
    importance = np.array([0.5, 0.3, 0.2])
    weigher = Weigher(
        dict(zip(NAMES, importance.tolist(), strict=True)), Weighting(softness=softness, step=0.05)
    )
    given, cohorts = np.zeros(3), [[0, 1], [1, 2], [1], [0, 1, 2]] * 1000
    for number, cohort in enumerate(cohorts):
        names = [NAMES[client] for client in cohort]
        weights = weigher.weights(names)
        weigher.observe(names, weights)
        given[cohort] += weights * (number >= len(cohorts) / 2)
    learnt = np.log(weigher.weights(NAMES) / importance)
    lacking = importance - given / (len(cohorts) / 2)
    price = softness * importance * (learnt - importance @ learnt)
    assert lacking == pytest.approx(price, abs=0.01)
    assert np.abs(lacking).sum() > 0.1


def test_a_client_that_was_excluded_for_long_does_not_take_the_round_either():
    def broken(arrays, config, node):
        bad = node["partition-id"] == 0 and 1 < config["server-round"] <= 200
        return {"w": arrays["w"] + (np.nan if bad else 1.0)}, {"num-examples": 1}

    exact = Weighting(softness=0.0)
    _, seen = run(6, [range(6)] * 201, update=broken, importance="uniform", weighting=exact)
    assert list(seen[100].excluded) == ["0"]
    assert seen[-1].weights["0"] == pytest.approx(10 / 15)


def test_a_limit_applies_to_the_shares_that_the_importance_gives():
    weights, plain = np.array([0.9, 0.06, 0.04]), np.array([0.2, 0.5, 0.3])
    found = limited(weights, plain, 4.0)
    odds, most = found / (1 - found), 4.0 * plain / (1 - plain)
    assert (odds <= most + AGREE).all()
    assert found.sum() == pytest.approx(1.0)
    assert odds[0] == pytest.approx(most[0])
    # The others keep their proportion.
    assert found[1] / found[2] == pytest.approx(weights[1] / weights[2])


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(1e-6, 1)), min_size=1, max_size=8),
    st.floats(1.0, 100.0),
)
def test_limited_weights_are_weights_within_their_limits(pairs, limit):
    weights, plain = np.array(pairs).T
    weights = (weights + 1e-12) / (weights + 1e-12).sum()
    plain = plain / plain.sum()
    found = limited(weights, plain, limit)
    assert found.sum() == pytest.approx(1.0)
    assert (found >= 0).all()
    assert (found <= limit * plain / (1 + (limit - 1) * plain) + AGREE).all()


def test_weights_within_the_limit_are_left_alone():
    weights = np.array([0.5, 0.3, 0.2])
    assert limited(weights, np.full(3, 1 / 3), 10.0) is weights


def test_an_alignments_weights_have_no_limit(alignment):
    weighting = Weighting(alignment=alignment, clients=NAMES, weight_limit=1.0)
    _, seen = run(3, [[1, 2]], weighting=weighting)
    assert list(seen[0].weights.values()) == pytest.approx(alignment.weights([1, 2]))


def claiming(count, liar="0", since=1):
    """Return an update: one client reports this number of examples, the others a hundred."""

    def update(arrays, config, node):
        lies = node["partition-id"] == int(liar) and config["server-round"] >= since
        return arrays, {"num-examples": count if lies else 100 + int(node["partition-id"])}

    return update


@pytest.mark.parametrize("n_clients", [2, 3, 10])
@pytest.mark.parametrize("count", [1e12, 10**9])
def test_a_count_that_dwarfs_all_others_does_not_own_the_model(caplog, n_clients, count):
    strategy, seen = run(
        n_clients, [range(n_clients)] * 3, update=claiming(count), importance="examples"
    )
    assert strategy.importance["0"] == pytest.approx(0.5)
    assert all(record.weights["0"] == pytest.approx(0.5, abs=0.01) for record in seen)
    warned = [message for message in warnings_of(caplog) if "client '0' reports" in message]
    assert len(warned) == 1


def test_counts_that_differ_as_counts_do_are_taken_as_they_are():
    counts = [1, 7, 50, 90, 400]

    def update(arrays, config, node):
        return arrays, {"num-examples": counts[int(node["partition-id"])]}

    strategy, seen = run(5, [range(5)] * 2, update=update, importance="examples")
    shares = {str(i): count / sum(counts) for i, count in enumerate(counts)}
    assert strategy.importance == pytest.approx(shares)
    assert seen[0].weights == pytest.approx(shares)


def test_a_count_is_limited_as_soon_as_there_are_others_to_compare_it_with():
    cohorts = [[0]] * 5 + [[0, 1]] + [range(4)] * 3
    strategy, seen = run(4, cohorts, update=claiming(1e12), importance="examples")
    assert seen[4].weights == {"0": 1.0}
    assert seen[5].weights["0"] == pytest.approx(0.5, abs=0.01)
    assert strategy.importance["0"] == pytest.approx(0.5)
    assert seen[6].weights["0"] <= 0.6


def test_two_clients_that_lie_have_half_together():
    found = plausible(np.array([1e12, 100.0, 90.0, 110.0, 1e11]))
    assert found.tolist() == [150.0, 100.0, 90.0, 110.0, 150.0]
    many = np.append(np.full(1000, 100.0), 11_000.0)
    assert plausible(many) is not None
    np.testing.assert_array_equal(plausible(many), many)


def test_a_selection_larger_than_the_available_asks_them_all():
    _, seen = run(3, [[0, 1, 2]] * 2, weighting=Weighting(cohort_size=10))
    assert [len(record.asked) for record in seen] == [3, 3]


def test_a_selection_follows_its_seed():
    def asked(seed):
        _, seen = run(6, [range(6)] * 5, weighting=Weighting(cohort_size=2, seed=seed))
        return [record.asked for record in seen]

    assert asked(1) == asked(1)
    assert asked(1) != asked(2)


def test_a_hundred_thousand_clients_are_weighed():
    weigher = Weigher("uniform", Weighting(cohort_size=50))
    names = [f"client {i}" for i in range(100_000)]
    assert weigher.admit(names) == {}
    chosen, shares = weigher.choose(names, np.random.default_rng(0))
    weigher.observe(chosen, np.array([shares[name] for name in chosen]))
    assert weigher.gap == pytest.approx(1 - 50 / 100_000)


def test_errors_of_input_are_all_of_one_kind():
    with pytest.raises(InputError, match="importance is empty"):
        FedAVOT(everybody(), importance={})
