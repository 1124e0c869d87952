"""What the library answers to small problems, through its public names alone, as plain data.

`results` computes it. `python tests/golden.py` writes it to `golden.json`, with which
`test_golden.py` compares. Write that file anew only where behaviour is meant to change, and read
the difference. Nothing here may depend on how an answer is found: clients in one level are a set,
potentials count by the weights that follow from them, and cohorts are those that the law draws.
"""

import json
import math
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedavot as fa
from fedavot import importance, rules, training
from fedavot.selection import inclusion_probabilities
from fedavot.training.tasks.linear import linear_task
from sealing import sealed

FILE = Path(__file__).with_suffix(".json")
DIGITS, ROUNDING = 12, 1e-12
NAMES = ["ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine"]


class Ring:
    """A law as users write one: a client leads, drawn uniformly, and the next one joins."""

    n_clients = 5

    def inclusion(self):
        return np.full(5, 2 / 5)

    def coverage(self, clients):
        return len({lead for i in clients for lead in (i, (i - 1) % 5)}) / 5

    def expected_weights(self, potentials, levels=None):
        levels = np.zeros(5) if levels is None else np.asarray(levels)
        expected = np.zeros(5)
        for lead in range(5):
            pair = np.array([lead, (lead + 1) % 5])
            lowest = pair[levels[pair] == levels[pair].min()]
            odds = np.exp(np.take(potentials, lowest) - np.take(potentials, lowest).max())
            expected[lowest] += odds / odds.sum() / 5
        return expected

    def sample(self, rng, rounds):
        return [np.sort([lead, (lead + 1) % 5]) for lead in rng.integers(5, size=rounds)]


class NamedRing(Ring):
    clients = tuple(NAMES[:5])


class Scene(NamedTuple):
    """A law, and two of the cohorts that it draws."""

    law: Any
    cohort: list
    other: list


PAIRS = fa.Cohorts([[0, 1], [1, 2]])
EXPLICIT = {
    "two clients": Scene(fa.Cohorts([[0, 1], [0]], [0.6, 0.4]), [0, 1], [0]),
    "listed cohorts": Scene(
        fa.Cohorts(
            [[0, 1], [1, 2, 3], [3, 4], [4, 5, 0], [2], [1, 0]], [0.25, 0.2, 0.2, 0.15, 0.1, 0.1]
        ),
        [3, 1, 2],
        [0, 5, 4],
    ),
    "named cohorts": Scene(
        fa.Cohorts(np.array([[0, 1, 2], [2, 3, 4], [1, 3, 4], [0, 2, 4]]), clients=NAMES[:5]),
        ["cedar", "ash", "birch"],
        [1, 3, 4],
    ),
    "log": Scene(
        fa.Cohorts.from_log(
            [7, 7, 3, 3, 3, 9, 9, 1, 5, 5],
            ["oak", "ash", "fir", "elm", "ash", "fir", "oak", "elm", "ash", "oak"],
        ),
        ["fir", "elm", "ash"],
        ["oak", "ash"],
    ),
    "two federations": Scene(fa.Cohorts([[0, 1], [1, 2], [3, 4], [4, 5]]), [1, 0], [4, 5]),
    "successive pairs": Scene(
        fa.SuccessiveDraws([1.0, 2.0, 0.5, 4.0, 1.5, 3.0, 0.25, 2.5], 2), [0, 6], [3, 1]
    ),
    "successive triples": Scene(
        fa.SuccessiveDraws([3.0, 1.0, 2.0, 0.5, 1.0, 0.1], 3, clients=NAMES[:6]),
        ["elm", "ash", "hazel"],
        [1, 2, 4],
    ),
}
IMPLICIT = {
    "uniform cohorts": Scene(fa.UniformCohorts(12, 3), [0, 11, 5], [1, 2, 3]),
    "uniform pairs": Scene(fa.UniformCohorts(4, 2, clients=NAMES[:4]), ["elm", "ash"], [1, 2]),
    "independent clients": Scene(
        fa.IndependentClients([0.9, 0.2, 0.5, 0.35, 0.7, 0.1, 0.6]), [1, 5, 0], [6, 5, 4, 3]
    ),
    "one always and one never": Scene(
        fa.IndependentClients([0.3, 1.0, 0.5, 0.0, 0.05], clients=NAMES[:5]),
        ["ash", "birch"],
        [1, 4, 2],
    ),
    "mixture": Scene(
        fa.Mixture(
            [
                fa.UniformCohorts(6, 2),
                fa.IndependentClients([0.1, 0.9, 0.2, 0.8, 0.3, 0.7]),
                fa.Cohorts([[0, 1], [2, 3, 4]], n_clients=6),
            ],
            [0.5, 0.3, 0.2],
        ),
        [0, 5],
        [4, 2, 3],
    ),
    "ring": Scene(Ring(), [0, 4], [2, 1]),
    "mixture with a ring": Scene(
        fa.Mixture([NamedRing(), fa.UniformCohorts(5, 3)], [0.75, 0.25], clients=NAMES[:5]),
        ["cedar", "elm", "ash"],
        [0, 1],
    ),
}
SCENES = EXPLICIT | IMPLICIT


def results():
    """Return every answer, as a dict from the name of a case to a dict of plain data."""
    found: dict[str, dict] = {}
    for name, scene in SCENES.items():
        found[f"law: {name}"] = facts_of_law(scene.law)
        for kind, wanted in importances(scene.law).items():
            found[f"{kind}: {name}"] = answers(wanted, scene, kind, name in EXPLICIT)
    parts = (larger(), online(), files(), selection(), amounts(), weights_by_rule())
    for part in (*parts, trained(), aggregated()):
        found |= part
    found["statuses"] = {status: status.message for status in fa.Status}
    found["refusals"] = {name: refusal(call) for name, call in REFUSALS.items()}
    return plain(found)


def importances(law):
    """Return importances of every kind: what plans attain, and what is too much."""
    client = np.arange(law.n_clients)
    potentials, halving = 0.9 * np.cos(2.0 * client), 0.5**client
    feasible = np.asarray(law.expected_weights(potentials))
    rare = client == np.argmin(np.round(law.inclusion(), 9))
    return {
        "feasible": feasible,
        "tight": np.asarray(law.expected_weights(potentials, client % 2)),
        "one client too many": 0.4 * feasible + 0.6 * rare,
        "steep": halving / halving.sum(),
        "some zero": importance.by_examples(np.where(client % 3 == 1, 0.0, 1.0 + client**2)),
    }


def facts_of_law(law):
    client = np.arange(law.n_clients)
    potentials = 3.0 * np.sin(client)
    found = {}
    if not isinstance(law, Ring):
        found |= {"clients": law.clients, "nonempty": law.nonempty, "repr": repr(law)}
    if isinstance(law, fa.SuccessiveDraws):
        found |= {"exact": law.exact, "n cohorts": law.cohorts.n_cohorts}
    if isinstance(law, fa.Cohorts):
        found |= {"n cohorts": law.n_cohorts, "probabilities": sorted(law.probabilities)}
    return found | {
        "inclusion": law.inclusion(),
        "coverage": [law.coverage(one) for one in ([0], [1, law.n_clients - 1], client)],
        "expected weights": law.expected_weights(potentials),
        "expected weights of levels": law.expected_weights(potentials, (client + 1) % 3),
        "drawn": law.sample(np.random.default_rng(4), 5),
    }


def answers(wanted, scene, kind, explicit):
    """Return what is said about one problem: the certificate, and every alignment."""
    law, cohorts = scene.law, (scene.cohort, scene.other)
    found = {
        **certified(wanted, law, exactly=explicit),
        **aligned(fa.align(wanted, law), cohorts, ""),
        **aligned(fa.align(wanted, law, softness=0.3), cohorts, "soft: "),
    }
    if explicit:
        least = fa.align(wanted, law, objective="variance")
        found |= aligned(least, cohorts, "variance: ")
    if kind == "feasible":
        for method in ("ipfp", "newton"):
            found |= aligned(fa.align(wanted, law, method=method), cohorts, f"{method}: ")
        if explicit:
            columns = fa.align(wanted, law).plan().toarray().T
            found["plan"] = sorted(columns.tolist())
    if kind == "tight" and explicit:
        stopped = fa.align(wanted, law, method="ipfp", max_iter=5)
        found["ipfp in 5 iterations: status"] = stopped.status
    return found


def certified(wanted, law, *, exactly):
    certificate = fa.certify(wanted, law)
    found = {
        "feasible": certificate.feasible,
        "deficient": certificate.deficient,
        "deficiency": certificate.deficiency,
        "hall ratio": certificate.hall_ratio,
        "proven": certificate.proven,
        "verified": certificate.verify(wanted, law),
    }
    if certificate.clients and not certificate.feasible:
        found["deficient clients"] = certificate.deficient_clients
        found["sentence"] = str(certificate)
        found["another importance verified"] = certificate.verify(np.roll(wanted, 1), law)
    return found | ({"exactly": certificate.verify(wanted, law, exact=True)} if exactly else {})


def aligned(alignment, cohorts, prefix):
    found = {
        "status": alignment.status,
        "gap": alignment.gap,
        "weights": [alignment.weights(cohort) for cohort in cohorts],
    }
    if prefix in ("", "variance: "):
        found["effective cohort size"] = alignment.effective_cohort_size
    if not prefix:
        sets = [np.flatnonzero(alignment.levels == level) for level in set(alignment.levels)]
        found["level sets"] = sorted(each.tolist() for each in sets)
        found["attained"] = alignment.attained
    return {prefix + name: value for name, value in found.items()}


def larger():
    """Return a few numbers of each larger problem, the paper's settings among them."""
    paper, rank = fa.UniformCohorts(100, 2), np.arange(1, 101)
    rng = np.random.default_rng(6)
    rounds = [rng.choice(400, rng.integers(1, 9), replace=False) for _ in range(900)]
    listed = fa.Cohorts([*rounds, *np.arange(400)[:, None]])
    free = fa.IndependentClients(rng.uniform(0.01, 0.4, 300))
    pairs = fa.SuccessiveDraws(rng.uniform(0.5, 2.0, 700), 2)
    sampled = fa.SuccessiveDraws(np.linspace(1.0, 3.0, 40), 8, draws=500, seed=3)
    problems: dict[str, tuple[Any, Any]] = {
        "the paper's exponential importance": (np.exp(-rank / 10), paper),
        "the paper's polynomial importance": ((101.0 - rank) ** 4, paper),
        "400 clients in 1,300 cohorts, feasible": (
            listed.expected_weights(np.cos(range(400))),
            listed,
        ),
        "400 clients in 1,300 cohorts, infeasible": (1.0 / np.arange(1, 401), listed),
        "300 independent clients, feasible": (free.expected_weights(np.sin(range(300))), free),
        "300 independent clients, infeasible": (np.exp(-np.arange(300) / 20), free),
        "pairs of 700 clients": (pairs.inclusion() ** 1.5, pairs),
        "sampled cohorts of 40 clients": (np.linspace(1.0, 2.0, 40), sampled),
    }
    found = {}
    for name, (amount, law) in problems.items():
        wanted, cohort = importance.by_examples(amount), law.sample(np.random.default_rng(2), 1)[0]
        certificate, alignment = fa.certify(wanted, law), fa.align(wanted, law)
        numbers, sizes = np.unique(alignment.levels, return_counts=True)
        largest = np.flatnonzero(alignment.levels == numbers[sizes.argmax()])
        found[f"larger: {name}"] = {
            "law": repr(law),
            "inclusion of a few": law.inclusion()[[0, 17, 39]],
            "feasible": certificate.feasible,
            "number of deficient clients": len(certificate.deficient),
            "deficiency": certificate.deficiency,
            "hall ratio": certificate.hall_ratio,
            "verified": certificate.verify(wanted, law),
            "status": alignment.status,
            "gap": alignment.gap,
            "effective cohort size": alignment.effective_cohort_size,
            "number of levels": len(numbers),
            "some of the largest level": largest[:5],
            "cohort": cohort[:5],
            "weights": alignment.weights(cohort)[:5],
            "potential differences": np.diff(alignment.potentials[largest[:5]]),
        }
    return found


def drawn_cohorts(n_clients, rounds, seed):
    """Return cohorts of one to three clients; the last client comes twice, and is long away."""
    rng = np.random.default_rng(seed)
    cohorts = [rng.choice(n_clients - 1, rng.integers(1, 4), replace=False) for _ in range(rounds)]
    return [[*each.tolist(), *[n_clients - 1] * (t in (2, 40))] for t, each in enumerate(cohorts)]


exact = partial(fa.OnlineAligner, softness=0, around="equal")

ONLINE = {
    "bounded": lambda: exact([0.3, 0.25, 0.2, 0.15, 0.1], step=0.8),
    "tightly bounded": lambda: exact([0.1, 0.1, 0.2, 0.2, 0.4], step=0.1, bound=0.5),
    "unbounded": lambda: exact(
        dict(zip(NAMES, [0.5, 0.2, 0.1, 0.15, 0.05], strict=False)), step=0.5, bound=None
    ),
    "from potentials": lambda: exact(
        [0.4, 0.0, 0.2, 0.3, 0.1], step=0.5, potentials=[1.0, -1.0, 0.5, 0.0, -0.5]
    ),
    "soft, around equal weights": lambda: fa.OnlineAligner(
        [0.3, 0.25, 0.2, 0.15, 0.1],
        softness=1.0,
        step=0.25,
        around="equal",
        potentials=[0.5, 0.0, 0.0, 0.0, -0.5],
    ),
    "soft, around the importance": lambda: fa.OnlineAligner(
        [0.4, 0.3, 0.2, 0.1, 0.0], clients=NAMES[:5]
    ),
}


def online():
    """Return how aligners stand after 50 rounds, and after the clients have changed."""
    found = {}
    for name, make in ONLINE.items():
        aligner, cohorts = make(), drawn_cohorts(5, 50, 8)
        for cohort in cohorts[:30]:
            aligner.observe(cohort)
        copies = [*loaded(aligner), type(aligner).from_state(aligner.state_dict(arrays=True))]
        weights = [[one.observe(each) for each in cohorts[30:]] for one in (aligner, *copies)]
        found[f"online: {name}"] = {
            **standing(aligner),
            "a saved one continues alike": all(same(each, weights[0]) for each in weights[1:]),
            "weights of the last rounds": weights[0][-3:],
        }
        found[f"online, clients change: {name}"] = changed(make(), cohorts)
    return found


def changed(aligner, cohorts):
    """Return an aligner's state after clients join and leave, and weights that were chosen."""
    names = aligner.clients and ["pine", "oak"]
    for cohort in cohorts[:10]:
        aligner.observe(cohort)
    joined = aligner.join([0.1, 0.2], clients=names)
    aligner.observe(["pine", "ash"] if names else [5, 0])
    aligner.observe([1, 2, 6], weights=[0.5, 0.25, 0.25])
    alone = aligner.join(0.05, potentials=[0.7], clients=names and ["maple"])
    aligner.reweigh(np.roll(aligner.importance, 1), added=np.linspace(-0.2, 0.2, 8))
    if not aligner.softness:
        aligner.leave(["oak"] if names else [6])
    for cohort in cohorts[10:30]:
        aligner.observe(cohort)
    again = [one.observe([0, 5, 7]) for one in (aligner, *loaded(aligner))]
    rest = {"joined": [*joined, *alone], "a saved one continues alike": same(*again)}
    return standing(aligner) | rest


def standing(aligner):
    """Return what an online aligner says of itself."""
    names = ("n_clients", "clients", "importance", "rounds", "realised", "owed")
    found = {name.replace("_", " "): getattr(aligner, name) for name in names}
    effective, soft = aligner.effective_potentials, aligner.softness > 0
    found |= {"bound": aligner.bound, "effective potentials": effective}
    found["initial potentials"] = None if soft else aligner.initial_potentials
    found["potentials"] = None if soft else aligner.potentials
    found["forgiven"] = None if soft else aligner.potentials - effective
    everybody = np.arange(aligner.n_clients)
    return found | {"repr": repr(aligner), "weights now": aligner.weights(everybody)}


def loaded(aligner):
    """Return the aligner as it comes back from a file."""
    with tempfile.TemporaryDirectory() as folder:
        aligner.save(Path(folder) / "state.json")
        return [type(aligner).load(Path(folder) / "state.json")]


def same(one, other):
    return all(np.array_equal(left, right) for left, right in zip(one, other, strict=True))


DOCUMENTS = json.loads(FILE.with_name("golden_files.json").read_text(encoding="utf-8"))


def files():
    """Return what files hold, and what files of today say once they are read."""
    readers: dict[str, Any] = {
        "alignment": fa.Alignment,
        "online aligner": fa.OnlineAligner,
        "soft online aligner": fa.OnlineAligner,
    }
    fresh: dict[str, Any] = {
        "alignment": fa.align([0.5, 0.25, 0.25], PAIRS),
        "online aligner": ONLINE["unbounded"](),
        "soft online aligner": ONLINE["soft, around equal weights"](),
    }
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.json"
        for name, reader in readers.items():
            fresh[name].save(path)
            content = json.loads(path.read_text())
            found[f"file: {name}"] = {
                "keys": sorted(content),
                "format": content["format"],
                "version": content["version"],
                "weights once read": reader.load(path).weights([1, 2]),
            }
            path.write_text(sealed(DOCUMENTS[name]))
            read = reader.load(path)
            named = ["cedar", "birch"] if read.clients else [2, 1]
            found[f"file: {name}"]["weights of a file of today"] = [
                read.weights([0, 1]),
                read.weights(named),
            ]
    return found


def selection():
    weights = [0.45, 0.05, 0.2, 0.0, 0.3]
    rng = np.random.default_rng(12)
    return {
        f"select {size} of 5": {
            "inclusion": inclusion_probabilities(weights, size),
            "chosen": [fa.select(weights, size, rng) for _ in range(4)],
        }
        for size in (1, 2, 3, 4, 9)
    }


def amounts():
    """Return what the functions of `importance` make of amounts, shares and files."""
    groups, targets = ["a", "b", "a", "c", "b"], {"a": 0.5, "b": 0.3, "c": 0.2}
    table = {"oak": 3, "ash": 1, "fir": 0}
    with tempfile.TemporaryDirectory() as folder:
        texts = {
            "shares.csv": "client;importance\noak;0.125\nash;0.875\n",
            "counts.csv": "client,site,examples\noak,x,1200\nash,y,800\n",
            "shares.json": '{"oak": 0.25, "ash": 2}',
        }
        read = {}
        for name, text in texts.items():
            (Path(folder) / name).write_text(text)
            read[name] = importance.read_mapping(Path(folder) / name)
    return {
        "importance": {
            "uniform": importance.uniform(3),
            "by examples": importance.by_examples([10, 0, 30, 25]),
            "by group": importance.by_group(groups, targets),
            "by group and size": importance.by_group(groups, targets, within=[1, 2, 3, 4, 5]),
            "tempered": [importance.tempered([0.7, 0.3, 0.0], exponent=e) for e in (0, 0.5, 1, 3)],
            "from a mapping": importance.from_mapping(table, ["ash", "fir", "oak"]),
            "read": read,
        }
    }


SHARES = np.array([0.4, 0.3, 0.2, 0.1])
LAW_OF_FOUR = fa.Cohorts([[0, 1], [1, 2], [0, 2, 3], [3], [0, 3]], [0.35, 0.2, 0.25, 0.1, 0.1])


def weights_by_rule():
    """Return the weight that each rule gives each client in five rounds, one of them empty."""
    cohorts = [np.array(each, dtype=int) for each in ([0, 1], [0, 2, 3], [], [1, 2], [0, 3])]
    known = rules.Known(SHARES, LAW_OF_FOUR)
    found = {}
    for name in rules.RuleName:
        rule = rules.build(name, known, **({"cohort_size": 2} if "select" in name else {}))
        asked: Any = rule.choose(cohorts, np.random.default_rng(5))
        if isinstance(asked, rules.Asked):
            asked = zip(asked.members, asked.weights, strict=True)
        given = np.zeros((5, 5))
        for t, (members, weights) in enumerate(asked):
            np.add.at(given[t], np.asarray(members, dtype=int), weights)
        found[f"rule: {name}"] = {
            "label": name.label,
            "knows": rule.knows,
            "stores": rule.stores,
            "has a gap": rule.has_gap,
            "weights": given[:, :4],
        }
    return found


TRAINED = {
    "fedavg": {},
    "fedavot": {"server_step": 0.8, "server_momentum": 0.5},
    "fedavot-steady": {},
    "mifa": {},
    "scaffold": {},
}


def trained():
    """Return the models after 30 rounds of least squares, in double precision."""
    rng = np.random.default_rng(9)
    features = rng.normal(size=(4, 6, 2))
    slopes = np.array([[1.0, -1.0], [0.5, 2.0], [-2.0, 0.0], [3.0, 1.0]])
    targets = np.einsum("ijk,ik->ij", features, slopes) + 0.1 * rng.normal(size=(4, 6))
    task = linear_task("golden", list(zip(features, targets, strict=True)))
    problem = training.Problem(task, SHARES, LAW_OF_FOUR.sample)
    how = training.Training(
        30, training.decaying(0.1, 20), local_steps=2, batch_size=3, seeds=(0, 7), record_every=10
    )
    known, found = rules.Known(SHARES, LAW_OF_FOUR), {}
    for name, options in TRAINED.items():
        rule = rules.build(name, known, **options)
        run = training.train(problem, rule, how)
        found[f"training: {name}"] = {
            "params": run.params,
            "average": run.average,
            "recorded": run.recorded,
            "losses": run.losses,
            "weights": run.weights,
            "realised gap": run.realised_gap(SHARES) if rule.has_gap else None,
            "unseen": run.unseen,
            "ending": run.ending,
            "dtype": str(np.asarray(run.params).dtype),
        }
    return found


IMPORTANCE = {"ash": 120, "fir": 40, "elm": 40, "oak": 10, "yew": 5}
AGGREGATORS: dict[str, dict[str, Any]] = {
    "trust is learnt": {},
    "trust is given, with corrections": {"trust": 0.6, "correction": 0.5},
    "without memory": {"memory": False},
}


def aggregated():
    """Return the models and reports of aggregators after 30 rounds in which clients change."""
    found = {}
    for name, options in AGGREGATORS.items():
        found[f"aggregator: {name}"] = play(fa.Aggregator(IMPORTANCE, **options))
    found["aggregator: clients nearly agree, and one stays away"] = play(
        fa.Aggregator(IMPORTANCE), rounds=80, spread=0.1
    )
    with tempfile.TemporaryDirectory() as folder:
        elsewhere = fa.Aggregator(IMPORTANCE, memory=Path(folder) / "rows")
        found["aggregator: memory on disk"] = play(elsewhere, save=False)
    return found


def play(aggregator, *, rounds=30, spread=1.0, save=True):
    """Play rounds of clients that pull the model to points of their own, near or far."""
    rng = np.random.default_rng(31)
    names, others = ["ash", "fir", "elm", "oak"], ["yew", "pine"]
    points = {name: 1.0 + spread * rng.normal(size=3) for name in (*names, *others)}
    model = {"w": np.zeros(2), "b": np.zeros(1), "running_mean": np.zeros(1)}
    corrections, copies = [], []
    for t in range(rounds):
        if t == 10:
            aggregator.join({"pine": 60})
            names.append("pine")
        if t == 15:
            aggregator.reweigh({"fir": 80, "ash": 30.5})
        if t == 20:
            aggregator.leave("elm")
            names.remove("elm")
        if t == rounds - 3 and save:
            copies = loaded(aggregator)
        cohort = rng.choice(names[:-1], rng.integers(1, 3), replace=False).tolist()
        cohort += [names[-1]] * (t in (3, 8, 17, 24))
        lr, steps = 0.2 / (1 + t / 20), {name: 1 + len(name) % 3 for name in cohort}
        trained = {}
        for name in cohort:
            drift = aggregator.correction(name, model)
            for copy in copies:
                copy.correction(name, model)
            corrections.append(None if drift is None else drift["w"])
            pull = points[name] + 0.3 * rng.normal(size=3)
            step = {"w": pull[:2] - model["w"], "b": pull[2:] - model["b"], "running_mean": t / 10}
            trained[name] = {
                key: model[key] + lr * steps[name] * (step[key] + (drift[key] if drift else 0.0))
                for key in model
            }
        ends = [one.aggregate(model, trained, steps=steps, lr=lr) for one in (aggregator, *copies)]
        model = ends[0]
    report = aggregator.report()
    told = "rounds wanted given gap effective_cohort_size trust tilt expired never advice"
    return {name.replace("_", " "): getattr(report, name) for name in told.split()} | {
        "model": model,
        "weights": aggregator.weights,
        "corrections": corrections[-3:],
        "saved ones continue alike": all(plain(end) == plain(model) for end in ends),
    }


REFUSALS = {
    "importance that does not sum to one": lambda: fa.certify([0.5, 0.4, 0.2], PAIRS),
    "importance below zero": lambda: fa.align([0.6, -0.1, 0.5], PAIRS),
    "importance that is NaN": lambda: fa.align([0.5, math.nan, 0.5], PAIRS),
    "importance of another length": lambda: fa.align([0.5, 0.5], PAIRS),
    "importance by name without names": lambda: fa.certify({"ash": 1.0}, PAIRS),
    "importance that lacks a name": lambda: fa.certify({"ash": 1.0}, EXPLICIT["log"].law),
    "a law that is none": lambda: fa.certify([0.5, 0.5], "weekend"),
    "a law as a class": lambda: fa.align([0.5, 0.5], fa.UniformCohorts),
    "an unknown objective": lambda: fa.align([0.4, 0.3, 0.3], PAIRS, objective="cost"),
    "an unknown method": lambda: fa.align([0.4, 0.3, 0.3], PAIRS, method="simplex"),
    "a tolerance of zero": lambda: fa.align([0.4, 0.3, 0.3], PAIRS, tol=0),
    "softness below zero": lambda: fa.align([0.4, 0.3, 0.3], PAIRS, softness=-0.1),
    "softness with ipfp": lambda: fa.align([0.4, 0.3, 0.3], PAIRS, softness=1, method="ipfp"),
    "variance without a list": lambda: fa.align(
        [0.4, 0.3, 0.3], fa.UniformCohorts(3, 2), objective="variance"
    ),
    "exact verification without a list": lambda: fa.certify(
        [0.4, 0.3, 0.3], fa.UniformCohorts(3, 2)
    ).verify([0.4, 0.3, 0.3], fa.UniformCohorts(3, 2), exact=True),
    "a plan without a list": lambda: fa.align([0.4, 0.3, 0.3], fa.UniformCohorts(3, 2)).plan(),
    "no cohorts": lambda: fa.Cohorts([]),
    "an empty cohort": lambda: fa.Cohorts([[0], []]),
    "a client twice in a cohort": lambda: fa.Cohorts([[0, 1], [2, 2]]),
    "a round with a client twice": lambda: fa.Cohorts.from_log([1, 1], ["ash", "ash"]),
    "probabilities that do not sum to one": lambda: fa.Cohorts([[0], [1]], [0.5, 0.6]),
    "a name twice": lambda: fa.UniformCohorts(2, 1, clients=["ash", "ash"]),
    "cohorts of more than everybody": lambda: fa.UniformCohorts(3, 4),
    "a probability above one": lambda: fa.IndependentClients([0.5, 1.5]),
    "nobody ever available": lambda: fa.IndependentClients([0.0, 0.0]),
    "states of other sizes": lambda: fa.Mixture([PAIRS, fa.UniformCohorts(4, 2)], [0.5, 0.5]),
    "a rate below zero": lambda: fa.SuccessiveDraws([1.0, -2.0], 1),
    "a set with an unknown client": lambda: PAIRS.coverage([3]),
    "potentials that are infinite": lambda: PAIRS.expected_weights([0.0, math.inf, 0.0]),
    "weights of nobody": lambda: fa.align([0.4, 0.3, 0.3], PAIRS).weights([]),
    "weights of an unknown name": lambda: EXPLICIT["named cohorts"].law.coverage(["yew"]),
    "names and indices mixed": lambda: EXPLICIT["named cohorts"].law.coverage(["ash", 1]),
    "a step of zero": lambda: exact([0.5, 0.5], step=0.0),
    "joining with everything": lambda: exact([0.5, 0.5], step=0.1).join(1.0),
    "everybody leaves": lambda: exact([0.5, 0.5], step=0.1).leave([0, 1]),
    "soft weights around nothing": lambda: fa.OnlineAligner(
        [0.5, 0.5], softness=1.0, step=0.1, around="zero"
    ),
    "selecting nobody": lambda: fa.select([0.5, 0.5], 0, np.random.default_rng(0)),
    "selecting by a seed": lambda: fa.select([0.5, 0.5], 1, 0),
    "examples that are all zero": lambda: importance.by_examples([0, 0]),
    "a group without a target": lambda: importance.by_group(["a", "b"], {"a": 1.0}),
    "an exponent below zero": lambda: importance.tempered([0.5, 0.5], exponent=-1),
    "a mapping without a client": lambda: importance.from_mapping({"ash": 1}, ["ash", "fir"]),
    "an unknown rule": lambda: rules.build("fedavott", rules.Known(SHARES)),
    "a rule without its law": lambda: rules.build("fedavot", rules.Known(SHARES)),
    "a rule without its option": lambda: rules.build(
        "fedavot-select", rules.Known(SHARES, LAW_OF_FOUR)
    ),
    "an option of no rule": lambda: rules.build("fedavg", rules.Known(SHARES), size=3),
    "no rounds of training": lambda: training.Training(0, training.constant(0.1)),
    "an aggregator of nobody": lambda: fa.Aggregator({}),
    "a model of a stranger": lambda: fa.Aggregator({"ash": 1}).apply(0.0, {"fir": 1.0}),
    "a model of another shape": lambda: fa.Aggregator({"ash": 1}).aggregate(
        np.zeros(2), {"ash": np.zeros(3)}
    ),
    "the last client leaves": lambda: fa.Aggregator({"ash": 1}).leave("ash"),
}


def refusal(call):
    """Return the class and the message of the error that a call ends in."""
    try:
        found = call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"accepted: {found!r}"


def plain(value):
    """Return a value as JSON has it, with floats of twelve digits and infinity as text."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if not isinstance(value, float):
        return str(value) if isinstance(value, str) else value
    if not math.isfinite(value):
        return str(value)
    return 0.0 if abs(value) < ROUNDING else float(f"{value:.{DIGITS}g}")


def written(found):
    """Return JSON with one line for each fact, sorted."""
    lines = [f'"{case}": {{\n{_facts(facts)}\n}}' for case, facts in sorted(found.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _facts(facts):
    pairs = sorted(facts.items())
    return ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in pairs
    )


if __name__ == "__main__":
    FILE.write_text(written(results()), encoding="utf-8")
