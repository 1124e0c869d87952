"""Every key of a study's configuration: its types, its default, and when it applies.

A choice brings keys of its own: ``radius`` comes with the projection onto a ball, ``exponent`` with
an importance that is a power. `config` checks names and types by these tables; which numbers are
accepted is decided where they are used. What a key means is in study.toml, which ``fedavot simulate
--example`` prints and which shows every key.
"""

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

REQUIRED: Final = object()
"""The default of a key that has none."""
_WORDS: dict[type, str] = {
    int: "an integer",
    float: "a finite number",
    bool: "true or false",
    str: "a line of text in quotes",
    list: "a list that is not empty",
    dict: "a table that is not empty",
}


class Key(NamedTuple):
    """What one key accepts.

    Attributes
    ----------
    types : tuple of types
        The types accepted.
    default : object
        What holds where it is not given; `REQUIRED` if it must be. None is for the builder to
        fill in.
    brings : mapping of str to keys
        The words accepted, and the further keys that each of them brings.
    """

    types: tuple[type, ...]
    default: Any = REQUIRED
    brings: "Mapping[str, Keys]" = MappingProxyType({})

    @property
    def words(self) -> str:
        """The values accepted, to follow "it must be"."""
        words = ", ".join(map(repr, self.brings))
        chosen = [f"one of {words}" if len(self.brings) > 1 else words] if words else []
        return " or ".join([*(_WORDS[kind] for kind in self.types), *chosen])

    def accepts(self, value: Any) -> bool:
        """Return whether a value is of a type, or a word, of this key."""
        chosen = isinstance(value, str) and value in self.brings
        return chosen or any(_is(kind, value) for kind in self.types)


Keys = Mapping[str, Key]
"""The keys of a table, by name."""


def _is(kind: type, value: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return kind is bool and isinstance(value, bool)
    if kind is float:
        # Written so that NaN, infinities and integers no float holds fail.
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    if kind is str:
        return isinstance(value, str) and bool(value.strip()) and value.isprintable()
    if kind is list:
        return isinstance(value, list) and bool(value) and not any(_is(bool, one) for one in value)
    return isinstance(value, kind) and (kind is int or bool(value))


def _key(*types: type, default: Any = REQUIRED) -> Key:
    return Key(types, default)


def _choice(words: Mapping[str, Keys], default: Any = REQUIRED) -> Key:
    return Key((), default, words)


def _maybe(*types: type) -> Key:
    return Key(types, None)


_LINE: Mapping[str, Keys] = {"linear": {"low": _key(float), "high": _key(float)}}
_ONE_EACH = Key((float, list), REQUIRED, _LINE)
"""One number for all clients, a list with one per client, or "linear" from low to high."""

TEXT = _key(str)
TOP: Keys = {"name": _maybe(str), "allow_unconverged": _key(bool, default=False)}
"""The keys before the first section, beside ``rules``."""

_SEED = _key(int, default=0)
_DRAWN: Keys = {
    "n_clients": _maybe(int),
    "n_features": _key(int, default=10),
    "examples": _key(int, default=30),
    "seed": _SEED,
}
_SPLIT: Keys = {
    "n_clients": _maybe(int),
    "examples": _maybe(int),
    "seed": _SEED,
    "test_share": _maybe(float),
}
_DIGITS: Keys = {**_SPLIT, "data_dir": _maybe(str), "standardise": _key(bool, default=True)}
_LOSS = _choice({"squares": {}, "absolute": {}, "hinge": {}, "softmax": {}, "mlp": {}})
_TASKS: Mapping[str, Keys] = {
    "regression": {},
    "heterogeneous-regression": _DRAWN,
    "absolute-deviations": _DRAWN,
    "hinge": {**_DRAWN, "flipped": _key(float, default=0.1)},
    "heterogeneous-softmax": {**_DRAWN, "n_classes": _key(int, default=10)},
    "mnist-softmax": _DIGITS,
    "mnist-mlp": _DIGITS,
    "mnist-cnn": _DIGITS,
    "arrays": {**_SPLIT, "file": _key(str), "test_file": _maybe(str), "loss": _LOSS},
}
SPLIT = ("mnist-softmax", "mnist-mlp", "mnist-cnn", "arrays")
"""Kinds of task whose examples a partition splits among clients."""

_PARTITIONS: Mapping[str, Keys] = {
    "iid": {},
    "two-digits": {"classes_per_client": _key(int, default=2)},
    "dirichlet": {"concentration": _key(float)},
    "by-group": {},
}
_IMPORTANCES: Mapping[str, Keys] = {
    "uniform": {},
    "by-examples": {},
    "linear": {},
    "power": {"exponent": _key(float)},
    "exponential": {"scale": _key(float)},
    "values": {"values": _key(list)},
    "file": {"file": _key(str), "unlisted": _maybe(float)},
    "groups": {"targets": _key(str, dict), "unlisted": _maybe(float)},
}
_LAWS: Mapping[str, Keys] = {
    "uniform-cohorts": {"cohort_size": _key(int)},
    "independent": {"probabilities": _ONE_EACH},
    "successive-draws": {"cohort_size": _key(int), "rates": _ONE_EACH},
}
STATE: Keys = {"probability": _key(float), "law": _choice(_LAWS)}
"""The keys of one state of a mixture."""
_LOG: Keys = {
    "file": _key(str),
    "order": _choice({"log": {}, "shuffled": {}}, "log"),
    "columns": _maybe(dict),
    "where": _maybe(dict),
    "statuses": _maybe(dict),
    "dates": _maybe(str),
    "period": _maybe(float),
    "cohort_size": _maybe(int),
    "state": _maybe(str),
    "observed": _maybe(str),
    "seed": _SEED,
}
_SCHEDULES: Mapping[str, Keys] = {
    "constant": {},
    "inverse-root": {},
    "decaying": {"halved_after": _key(float)},
    "cosine": {},
}
_SETS: Mapping[str, Keys] = {
    "none": {},
    "ball": {"radius": _key(float)},
    "box": {"low": _key(float), "high": _key(float)},
}

TABLES: Mapping[str, Keys] = {
    "task": {"kind": _choice(_TASKS)},
    "partition": {"kind": _choice(_PARTITIONS, None)},
    "importance": {"kind": _choice(_IMPORTANCES, "uniform"), "groups": _maybe(str)},
    "availability": {
        "law": _choice({**_LAWS, "mixture": {"states": _key(list)}, "log": _LOG}),
        "known": _key(bool, default=True),
    },
    "training": {
        "rounds": _key(int),
        "step": _key(float),
        "schedule": _choice(_SCHEDULES, "constant"),
        "local_steps": _key(int, default=1),
        "batch_size": _maybe(int),
        "projection": _choice(_SETS, "none"),
        "record_every": _key(int, default=1),
        "tail": _maybe(int),
        "target": _maybe(float),
        "seeds": _key(int, list, default=3),
    },
}
"""The sections and their keys."""


class Place(NamedTuple):
    """A key, and the other key and its value that bring it; both empty if none does."""

    key: Key
    owner: str = ""
    word: str = ""


def places(keys: Keys, owner: str = "", word: str = "") -> dict[str, list[Place]]:
    """Return all keys of a table by name, including those that its choices bring."""
    found: dict[str, list[Place]] = {}
    for name, key in keys.items():
        found.setdefault(name, []).append(Place(key, owner, word))
        for chosen, brought in key.brings.items():
            for inner, several in places(brought, name, chosen).items():
                found.setdefault(inner, []).extend(several)
    return found
