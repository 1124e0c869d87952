"""Read and check a study's configuration, a TOML file.

The keys are defined in `keys`; here they are looked up, checked, and given their defaults. The
first mistake is raised as a `ConfigError` that names the file, the key, what was found and what is
accepted. `configured` builds a setting from the result.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedavot._checks import shown
from fedavot._files import PathLike
from fedavot._reading import read_text
from fedavot.errors import ConfigError, FileFormatError, InputError, TooLargeError
from fedavot.experiments.keys import (
    REQUIRED,
    SPLIT,
    STATE,
    TABLES,
    TEXT,
    TOP,
    Key,
    Keys,
    Place,
    places,
)
from fedavot.rules.names import as_rule_name

Table = Mapping[str, Any]
"""A section with every key that applies, defaults filled in."""

_RULES = "a list of names, such as ['full', 'fedavot'], or tables headed [[rules]]"
_LONGEST_NAME = 100
"""Characters of a study's name: files are called by it, and their names have at most 255 bytes."""
_LONGEST = 60
"""Number of characters of a value that a message shows."""


@dataclass(frozen=True, eq=False)
class Config:
    """A checked configuration.

    Attributes
    ----------
    path : Path
        The file; paths in it are relative to its folder.
    name : str
        Name of the study.
    allow_unconverged : bool
        Whether to accept alignments that missed their tolerance.
    task, partition, importance, availability, training : mapping
        The sections.
    rules : tuple of mapping
        Each rule's name and options.
    """

    path: Path
    name: str
    allow_unconverged: bool
    task: Table
    partition: Table
    importance: Table
    availability: Table
    training: Table
    rules: tuple[Table, ...]

    def file(self, where: str, given: str) -> Path:
        """Return the path that a key, such as ``task.file``, gives; it must be a file."""
        path = self.path.parent / given
        if not os.path.isfile(path):  # Path.is_file raises where a name is too long
            raise ConfigError(
                f"{where} is {given!r}, and there is no file {path}; give a path relative to the "
                "configuration's folder, or an absolute one"
            )
        return path


@contextmanager
def at(where: str) -> Iterator[None]:
    """Put a key in front of what a constructor refuses."""
    try:
        yield
    except ConfigError:
        raise
    except (InputError, FileFormatError, TooLargeError) as cause:
        raise ConfigError(f"{where}: {cause}") from None


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Put the configuration's file in front of what is wrong with it."""
    try:
        yield
    except ConfigError as cause:
        raise ConfigError(f"{path}: {cause}") from None


def read_config(path: PathLike) -> Config:
    """Read and check a study's configuration.

    Parameters
    ----------
    path : path
        A TOML file with the sections of `keys`.

    Returns
    -------
    Config
        With every default filled in. Files it names are opened later, by `configured.setting_of`.
    """
    file = Path(path)
    try:
        held = _toml_in(read_text(file), file)
    except OSError as cause:
        raise ConfigError(
            f"{file}: cannot be read ({cause.strerror}); give the path of a TOML file"
        ) from None
    except FileFormatError as cause:
        raise ConfigError(str(cause)) from None
    with in_file(file):
        return _config(file, held)


def _toml_in(text: str, file: Path) -> dict[str, Any]:
    """Return the content of TOML, or name the file and the reason, with its line."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as cause:
        end = f"at the end, line {text.count(chr(10)) + 1}"
        why = str(cause).replace("at end of document", end)
        raise ConfigError(f"{file}: not valid TOML: {why}; correct it") from None


def _config(file: Path, held: Table) -> Config:
    known = [*TOP, *TABLES, "rules"]
    for name in held:
        if name not in known:
            raise _unknown("", name, known)
    top = _checked("", {name: held[name] for name in TOP if name in held}, TOP)
    name = file.stem if top["name"] is None else top["name"]
    if len(name) > _LONGEST_NAME or {"/", "\\"} & set(name) or not name.strip(". "):
        found = "missing, and the file's own cannot be it" if top["name"] is None else repr(name)
        raise ConfigError(
            f"name is {found}; it must be a line of text in quotes, of 1 to {_LONGEST_NAME} "
            "characters, without / and \\, and not of dots alone"
        )
    sections = {name: _table(name, held.get(name, {}), keys) for name, keys in TABLES.items()}
    sections["availability"]["states"] = [
        _table(f"availability.states[{number}]", state, STATE)
        for number, state in enumerate(sections["availability"].get("states", ()))
    ]
    _check_between(held, sections)
    return Config(
        path=file,
        name=name,
        allow_unconverged=top["allow_unconverged"],
        rules=_rules(held.get("rules")),
        **sections,
    )


def _table(name: str, table: Any, keys: Keys) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ConfigError(f"{name} is {_shown(table)}; it must be a table of keys")
    return _checked(f"{name}.", table, keys)


def _checked(prefix: str, table: Table, keys: Keys) -> dict[str, Any]:
    """Return the table's values, checked, and the defaults of what it does not give.

    In messages a key has a prefix, such as ``training.``.
    """
    names = places(keys)
    for name in table:
        if name not in names:
            raise _unknown(prefix, name, names)
    done: dict[str, Any] = {}
    waiting = [(name, key, "") for name, key in keys.items()]
    while waiting:
        name, key, because = waiting.pop(0)
        value = table.get(name, key.default)
        if value is REQUIRED:
            raise ConfigError(
                f"{prefix}{name} is missing{because}; {_must(key)} (fedavot simulate --example "
                "explains every key)"
            )
        if name in table and not key.accepts(value):
            hint = _nearest(value, key.brings) if isinstance(value, str) else ""
            raise ConfigError(f"{prefix}{name} is {_shown(value)}{hint}; {_must(key)}")
        done[name] = value
        brought = key.brings.get(value, {}) if isinstance(value, str) else {}
        waiting += [
            (more, own, f", and {name} = {value!r} needs it") for more, own in brought.items()
        ]
    for name in table:
        if name not in done:
            raise _misplaced(prefix, name, names[name], done)
    return done


def _check_between(held: Table, sections: Mapping[str, Table]) -> None:
    """Check the sections against each other."""
    kind = sections["task"]["kind"]
    if "partition" in held and kind not in SPLIT:
        raise ConfigError(
            f"partition is not used with task.kind = {kind!r}; it belongs to "
            f"{' or '.join(map(repr, SPLIT))}"
        )
    if sections["importance"]["kind"] == "groups" and sections["importance"]["groups"] is None:
        raise ConfigError(
            "importance.groups is missing, and kind = 'groups' needs it: a CSV file with the "
            "columns client and group"
        )


def _rules(entries: Any) -> tuple[Table, ...]:
    """Return each rule's name and options, from names, tables, or both.

    Which options a rule has is known to the rule alone, and checked when it is built.
    """
    if entries is None:
        raise ConfigError(f"rules is missing; it must be {_RULES}")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"rules is {_shown(entries)}; it must be {_RULES}")
    rules: dict[str, Table] = {}
    for number, entry in enumerate(entries):
        rule = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(rule, dict):
            raise ConfigError(
                f"rules[{number}] is {_shown(entry)}; it must be a rule's name or a table"
            )
        own = {key: value for key, value in rule.items() if key == "name"}
        with at(f"rules[{number}].name"):
            name = as_rule_name(_checked(f"rules[{number}].", own, {"name": TEXT})["name"])
        if name in rules:
            raise ConfigError(
                f"rules[{number}] (counted from 0) has {name!r} a second time; compare its options "
                "in separate studies"
            )
        rules[name] = {**rule, "name": name}
    return tuple(rules.values())


def _must(key: Key) -> str:
    return f"it must be {key.words}"


def _unknown(prefix: str, name: str, accepted: Iterable[str]) -> ConfigError:
    hint = _elsewhere(name) or _nearest(name, accepted)
    return ConfigError(f"{prefix}{name} is unknown{hint}; the keys here are {', '.join(accepted)}")


def _elsewhere(name: str) -> str:
    """Return where a key that is unknown here belongs."""
    if name in {"rules", *TOP}:
        return " (it belongs at the top, before the first [section])"
    sections = [f"[{section}]" for section, keys in TABLES.items() if name in places(keys)]
    return f" (it belongs in {' or '.join(sections)})" if sections else ""


def _misplaced(prefix: str, name: str, found: Sequence[Place], done: Table) -> ConfigError:
    """Return the error for a key that another choice rules out."""
    owner = found[0].owner
    choice = f"where {owner} is not given"
    if done.get(owner) is not None:
        choice = f"with {owner} = {_shown(done[owner])}"
    belongs = " or ".join(f"{place.owner} = {place.word!r}" for place in found)
    return ConfigError(f"{prefix}{name} is not used {choice}; it belongs to {belongs}")


def _nearest(word: str, accepted: Iterable[str]) -> str:
    close = difflib.get_close_matches(word.lower(), list(accepted), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _shown(value: Any) -> str:
    """Return a value roughly as in TOML, truncated to fit a message."""
    try:
        plain = isinstance(value, (bool, list, dict))
        text = json.dumps(value, default=str) if plain else shown(value)
    except ValueError:
        text = shown(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
