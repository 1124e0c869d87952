"""Every key of a study's configuration: what it accepts, its default, and when it applies.

A choice brings keys of its own: ``radius`` comes with the projection onto a ball, ``exponent`` with
an importance that is a power. `config` reads files by these tables; what a key means is in
study.toml, which ``fedavot simulate --example`` prints and which shows every key.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

REQUIRED: Final = object()
"""The default of a key that has none."""

MOST = 10**9
"""The largest count: more does not fit in any memory, and must be a mistake."""
LARGEST_SEED = 2**31 - 1
MOST_SEEDS = 1000
LONGEST_NAME = 100
"""Characters of a study's name: files are called by it, and their names have at most 255 bytes."""


@dataclass(frozen=True)
class Key:
    """What one key accepts.

    Attributes
    ----------
    words : str
        The values accepted, to follow "it must be".
    accepts : function of a value
        Whether the value is one.
    default : object
        What holds where it is not given; `REQUIRED` if it must be. None is for the builder to
        fill in.
    brings : mapping of str to keys
        The further keys that a word brings, if it is the value.
    """

    words: str
    accepts: Callable[[Any], bool]
    default: Any = REQUIRED
    brings: Mapping[str, "Keys"] = field(default_factory=dict)

    def otherwise(self, default: Any) -> "Key":
        """Return the key with a default."""
        return replace(self, default=default)


Keys = Mapping[str, Key]
"""The keys of a table, by name."""


def _choice(words: Mapping[str, Keys]) -> Key:
    return Key(
        f"one of {', '.join(map(repr, words))}",
        lambda value: isinstance(value, str) and value in words,
        brings=words,
    )


def _whole(low: int, high: int = MOST) -> Key:
    return Key(
        f"an integer from {low} to {high:,}",
        lambda value: _is_whole(value) and low <= value <= high,
    )


def _number(words: str, holds: Callable[[float], bool] = lambda value: True) -> Key:
    # Written so that NaN, infinities and integers no float holds fail.
    return Key(
        words,
        lambda value: (
            (_is_whole(value) or isinstance(value, float))
            and abs(value) <= sys.float_info.max
            and holds(value)
        ),
    )


def _one_each(key: Key) -> Key:
    """Return a key for one value for all clients, a list with one per client, or 'linear'."""
    return Key(
        f"{key.words}, a list with one per client, or 'linear' with low and high",
        lambda value: value == "linear" or key.accepts(value) or _is_list(value, key.accepts),
        brings={"linear": {"low": key, "high": key}},
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: Any, accepts: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and bool(value) and all(map(accepts, value))


def _is_table(value: Any, accepts: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and _is_list(list(value.values()), accepts)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _are_seeds(value: Any) -> bool:
    if _is_list(value, _SEED.accepts):
        return len(set(value)) == len(value) <= MOST_SEEDS
    return _is_whole(value) and 1 <= value <= MOST_SEEDS


_COUNT = _whole(1)
_SEED = _whole(0, LARGEST_SEED)
_FINITE = _number("a finite number")
_POSITIVE = _number("a finite number above 0", lambda value: value > 0)
_NOT_NEGATIVE = _number("a finite number of at least 0", lambda value: value >= 0)
_FRACTION = _number("a number from 0 to 1", lambda value: 0 <= value <= 1)
_PROPER = _number("a number between 0 and 1", lambda value: 0 < value < 1)
_FLAG = Key("true or false", lambda value: isinstance(value, bool))
TEXT = Key("a line of text in quotes", _is_text)
NAME = Key(
    f"a line of text in quotes, of 1 to {LONGEST_NAME} characters, without / and \\, and not of "
    "dots alone",
    lambda value: (
        _is_text(value)
        and len(value) <= LONGEST_NAME
        and not {"/", "\\"} & set(value)
        and bool(value.strip(". "))
    ),
)
"""Names of studies, which are names of folders as well."""
SEEDS = Key(
    f"a count from 1 to {MOST_SEEDS:,} (seeds 0, 1, ...) or a list of distinct integers from 0 to "
    f"{LARGEST_SEED:,}",
    _are_seeds,
)
_SHARES = Key(
    "a list of numbers of at least 0, one per client, not all 0",
    lambda value: _is_list(value, _NOT_NEGATIVE.accepts) and any(value),
)
_TARGETS = Key(
    "a table from group to share, or the path of a file in quotes",
    lambda value: _is_text(value) or _is_table(value, _NOT_NEGATIVE.accepts),
)
_COLUMNS = Key(
    "a table from meaning to column, such as {client = 'device_id'}",
    lambda value: _is_table(value, lambda name: isinstance(name, str)),
)
_STATES = Key(
    "tables headed [[availability.states]], each with its probability and law",
    lambda value: _is_list(value, lambda state: isinstance(state, dict)),
)

TOP: Keys = {"name": NAME.otherwise(None), "allow_unconverged": _FLAG.otherwise(False)}
"""The keys before the first section, beside ``rules``."""

_DRAWN: Keys = {
    "n_clients": _COUNT.otherwise(None),
    "n_features": _COUNT.otherwise(10),
    "examples": _COUNT.otherwise(30),
    "seed": _SEED.otherwise(0),
}
_SPLIT: Keys = {
    "n_clients": _COUNT.otherwise(None),
    "examples": _COUNT.otherwise(None),
    "seed": _SEED.otherwise(0),
    "held_out": _PROPER.otherwise(None),
}
_DIGITS: Keys = {
    **_SPLIT,
    "data_dir": TEXT.otherwise(None),
    "standardise": _FLAG.otherwise(True),
}
_LOSS = _choice({"squares": {}, "absolute": {}, "hinge": {}, "softmax": {}})
TASKS: Mapping[str, Keys] = {
    "regression": {},
    "heterogeneous-regression": _DRAWN,
    "absolute-deviations": _DRAWN,
    "hinge": {**_DRAWN, "flipped": _FRACTION.otherwise(0.1)},
    "mnist-softmax": _DIGITS,
    "mnist-cnn": _DIGITS,
    "arrays": {**_SPLIT, "file": TEXT, "test_file": TEXT.otherwise(None), "loss": _LOSS},
}
"""The kinds of task, and their keys."""
SPLIT = ("mnist-softmax", "mnist-cnn", "arrays")
"""Kinds of task whose examples a partition splits among clients."""

_PARTITIONS: Mapping[str, Keys] = {
    "iid": {},
    "two-digits": {"classes_per_client": _COUNT.otherwise(2)},
    "dirichlet": {"concentration": _POSITIVE},
    "by-group": {},
}
_IMPORTANCES: Mapping[str, Keys] = {
    "uniform": {},
    "by-examples": {},
    "linear": {},
    "power": {"exponent": _NOT_NEGATIVE},
    "exponential": {"scale": _POSITIVE},
    "values": {"values": _SHARES},
    "file": {"file": TEXT, "unlisted": _NOT_NEGATIVE.otherwise(None)},
    "groups": {"targets": _TARGETS, "unlisted": _NOT_NEGATIVE.otherwise(None)},
}
_LAWS: Mapping[str, Keys] = {
    "uniform-cohorts": {"cohort_size": _COUNT},
    "independent": {"probabilities": _one_each(_FRACTION)},
    "successive-draws": {"cohort_size": _COUNT, "rates": _one_each(_NOT_NEGATIVE)},
}
STATE: Keys = {"probability": _FRACTION, "law": _choice(_LAWS)}
"""The keys of one state of a mixture."""
_LOG: Keys = {
    "file": TEXT,
    "order": _choice({"log": {}, "shuffled": {}}).otherwise("log"),
    "columns": _COLUMNS.otherwise(None),
    "period": _POSITIVE.otherwise(None),
    "cohort_size": _COUNT.otherwise(None),
    "state": TEXT.otherwise(None),
    "observed": TEXT.otherwise(None),
    "seed": _SEED.otherwise(0),
}
_SCHEDULES: Mapping[str, Keys] = {
    "constant": {},
    "inverse-root": {},
    "decaying": {"halved_after": _POSITIVE},
    "cosine": {},
}
_SETS: Mapping[str, Keys] = {
    "none": {},
    "ball": {"radius": _POSITIVE},
    "box": {"low": _FINITE, "high": _FINITE},
}

TABLES: Mapping[str, Keys] = {
    "task": {"kind": _choice(TASKS)},
    "partition": {"kind": _choice(_PARTITIONS).otherwise(None)},
    "importance": {
        "kind": _choice(_IMPORTANCES).otherwise("uniform"),
        "groups": TEXT.otherwise(None),
    },
    "availability": {
        "law": _choice({**_LAWS, "mixture": {"states": _STATES}, "log": _LOG}),
        "known": _FLAG.otherwise(True),
    },
    "training": {
        "rounds": _COUNT,
        "step": _POSITIVE,
        "schedule": _choice(_SCHEDULES).otherwise("constant"),
        "local_steps": _COUNT.otherwise(1),
        "batch_size": _COUNT.otherwise(None),
        "projection": _choice(_SETS).otherwise("none"),
        "record_every": _COUNT.otherwise(1),
        "tail": _COUNT.otherwise(None),
        "target": _FINITE.otherwise(None),
        "seeds": SEEDS.otherwise(3),
    },
}
"""The sections and their keys."""


def every_key(keys: Keys) -> dict[str, list[Key]]:
    """Return all keys of a table by name, including those that its choices bring."""
    found: dict[str, list[Key]] = {}
    for name, key in keys.items():
        found.setdefault(name, []).append(key)
        for brought in key.brings.values():
            for inner, several in every_key(brought).items():
                found.setdefault(inner, []).extend(several)
    return found
