"""Read and check a study's configuration, a TOML file.

The keys are defined in `keys`; here they are looked up, checked, and given their defaults. The
first mistake is raised as a `ConfigError` that names the file, the key, what was found and what is
accepted. `configured` builds a setting from the result.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedavot._checks import shown
from fedavot._files import PathLike
from fedavot.errors import ConfigError, FileFormatError, InputError, RuleError, TooLargeError
from fedavot.experiments.keys import (
    DEALT,
    DIGITS,
    NAME,
    OPTIONS,
    REQUIRED,
    TABLES,
    TEXT,
    TOP,
    Key,
    Kind,
)
from fedavot.rules.names import as_rule_name

Table = Mapping[str, Any]
"""A section with every key that applies, defaults filled in."""

_RULE_NAME = Key("name", TEXT, "the rule")
_MANY_DIGITS = re.compile(r"[0-9_]{4301,}")
"""Numbers that Python refuses to read, as that takes time quadratic in their digits."""
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
        Each rule's name and the options given.
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

    def error(self, where: str, what: str) -> ConfigError:
        """Return the error for a key.

        Parameters
        ----------
        where : str
            The key's path, such as ``training.rounds``.
        what : str
            What is wrong, to follow the path.
        """
        return _error(self.path, where, what)

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Add the file and the key to the errors of a constructor."""
        try:
            yield
        except ConfigError:
            raise
        except (InputError, FileFormatError, TooLargeError) as cause:
            raise ConfigError(f"{self.path}: {where}: {cause}") from None

    def file(self, section: str, key: str = "file") -> Path:
        """Return the path a key gives, which must be a file."""
        given: str = getattr(self, section)[key]
        path = self.path.parent / given
        if not path.is_file():
            raise self.error(
                f"{section}.{key}",
                f"is {given!r}, and there is no file {path}; give a path relative to the "
                "configuration's folder, or an absolute one",
            )
        return path


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
    held = _parse(file)
    known = [*(key.name for key in TOP), *TABLES, "rules"]
    for name in held:
        if name not in known:
            raise _unknown(file, "", name, known)
    top = _checked(file, "", {k: v for k, v in held.items() if k in _names(TOP)}, TOP)
    sections = {
        name: _section(file, name, held.get(name, {}), keys) for name, keys in TABLES.items()
    }
    _check_between(file, held, sections)
    return Config(
        path=file,
        name=top["name"] or _stem(file),
        allow_unconverged=top["allow_unconverged"],
        rules=_rules(file, held.get("rules")),
        **sections,
    )


def _stem(file: Path) -> str:
    """Return the name of a study whose file gives none."""
    if not NAME.accepts(file.stem):
        raise _error(
            file, "name", f"is missing, and the file's own cannot be it; it must be {NAME.words}"
        )
    return file.stem


def _parse(file: Path) -> dict[str, Any]:
    text = ""
    try:
        text = file.read_bytes().decode("utf-8")
        return tomllib.loads(text)
    except OSError as cause:
        raise ConfigError(
            f"{file}: cannot be read ({cause.strerror}); give the path of a TOML file"
        ) from None
    except (ValueError, RecursionError) as cause:  # ValueError alone for too many digits
        if digits := _MANY_DIGITS.search(text):
            line = text.count("\n", 0, digits.start()) + 1
            raise ConfigError(
                f"{file}: line {line} has a number of {len(digits[0]):,} digits; no key takes one"
            ) from None
        end = f"at the end, line {text.count(chr(10)) + 1}"
        what = str(cause).replace("at end of document", end)
        raise ConfigError(f"{file}: not valid TOML: {what}") from None


def _section(file: Path, name: str, table: Any, keys: Sequence[Key]) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise _error(file, name, f"is {_shown(table)}; it must be a table, headed [{name}]")
    return _checked(file, f"{name}.", table, keys)


def _checked(
    file: Path, prefix: str, table: Mapping[str, Any], keys: Sequence[Key]
) -> dict[str, Any]:
    """Return the table's values, checked, and the defaults of what it does not give.

    Parameters
    ----------
    file : Path
        The file, for messages.
    prefix : str
        Prefix of a key's name in messages, such as ``training.``.
    table : mapping
        The table as read.
    keys : sequence of Key
        The table's keys; a key comes after the one it depends on.
    """
    names = _names(keys)
    for name in table:
        if name not in names:
            raise _unknown(file, prefix, name, names)
    done: dict[str, Any] = {}
    for key in keys:
        if key.when is not None and done.get(key.when[0]) not in key.when[1]:
            continue
        if key.name in table:
            done[key.name] = _accepted(file, prefix + key.name, table[key.name], key.kind)
        elif key.default is REQUIRED:
            raise _error(
                file,
                prefix + key.name,
                f"is missing{_because(key, done)}: {key.meaning}; it must be {key.kind.words}",
            )
        else:
            done[key.name] = key.default
    for name in table:
        if name not in done:
            raise _misplaced(file, prefix, [key for key in keys if key.name == name], done)
    return done


def _accepted(file: Path, where: str, value: Any, kind: Kind) -> Any:
    if kind.accepts(value):
        return value
    hint = _nearest(value, kind.choices) if isinstance(value, str) else ""
    raise _error(file, where, f"is {_shown(value)}{hint}; it must be {kind.words}")


def _check_between(file: Path, held: Table, sections: Mapping[str, Table]) -> None:
    """Check the sections against each other."""
    kind, partition = sections["task"]["kind"], sections["partition"]["kind"]
    if "partition" in held and kind not in DEALT:
        raise _error(
            file,
            "partition",
            f"is not used with task.kind = {kind!r}; it belongs to {' or '.join(map(repr, DEALT))}",
        )
    if partition == "by-group" and kind in DIGITS:
        raise _error(
            file,
            "partition.kind",
            f"is 'by-group', and task.kind = {kind!r} has no groups; it must be one of 'iid', "
            "'two-digits', 'dirichlet'",
        )
    if partition == "two-digits" and sections["task"]["examples"] is None:
        raise _error(
            file,
            "task.examples",
            "is missing, and partition.kind = 'two-digits' needs it: examples per client",
        )
    tail, rounds = sections["training"]["tail"], sections["training"]["rounds"]
    if tail is not None and tail > rounds:
        raise _error(
            file, "training.tail", f"is {tail}; it must be at most training.rounds = {rounds}"
        )


def _rules(file: Path, entries: Any) -> tuple[Table, ...]:
    """Return each rule's name and options, from names, tables, or both."""
    wanted = "a list of names, such as ['full', 'fedavot'], or tables headed [[rules]]"
    if entries is None:
        raise _error(file, "rules", f"is missing: the rules compared; it must be {wanted}")
    if not isinstance(entries, list) or not entries:
        raise _error(file, "rules", f"is {_shown(entries)}; it must be {wanted}")
    rules: dict[str, Table] = {}
    for number, entry in enumerate(entries):
        where = f"rules[{number}]"
        rule = _rule(file, where, {"name": entry} if isinstance(entry, str) else entry)
        if rule["name"] in rules:
            raise _error(
                file,
                where,
                f"has {rule['name']!r} a second time; compare its options in separate studies",
            )
        rules[rule["name"]] = rule
    return tuple(rules.values())


def _rule(file: Path, where: str, entry: Any) -> Table:
    if not isinstance(entry, dict):
        raise _error(file, where, f"is {_shown(entry)}; it must be a rule's name or a table")
    # The name decides which options there are, so it is checked first.
    given = {key: value for key, value in entry.items() if key == "name"}
    try:
        name = as_rule_name(_checked(file, f"{where}.", given, (_RULE_NAME,))["name"])
    except RuleError as cause:
        raise ConfigError(f"{file}: {where}.name: {cause}") from None
    checked = _checked(file, f"{where}.", entry, (_RULE_NAME, *OPTIONS.get(name, ())))
    return {key: value for key, value in checked.items() if value is not None} | {"name": name}


def _error(file: Path, where: str, what: str) -> ConfigError:
    return ConfigError(f"{file}: {where} {what}")


def _unknown(file: Path, prefix: str, name: str, accepted: Sequence[str]) -> ConfigError:
    hint = _elsewhere(name) or _nearest(name, accepted)
    return _error(
        file, f"{prefix}{name}", f"is unknown{hint}; the keys here are {', '.join(accepted)}"
    )


def _elsewhere(name: str) -> str:
    """Return where a key that is unknown here belongs."""
    if name in {"rules", *_names(TOP)}:
        return " (it belongs at the top, before the first [section])"
    sections = [f"[{section}]" for section, keys in TABLES.items() if name in _names(keys)]
    return f" (it belongs in {' or '.join(sections)})" if sections else ""


def _misplaced(
    file: Path, prefix: str, keys: Sequence[Key], done: Mapping[str, Any]
) -> ConfigError:
    """Return the error for a key that another choice rules out."""
    owners = [key.when for key in keys if key.when is not None]
    found = done.get(owners[0][0])
    choice = f"where {owners[0][0]} is not given"
    if found is not None:
        choice = f"with {owners[0][0]} = {_shown(found)}"
    belongs = [f"{name} = {word!r}" for name, words in owners for word in words]
    return _error(
        file,
        prefix + keys[0].name,
        f"is not used {choice}; it belongs to {' or '.join(belongs)}",
    )


def _because(key: Key, done: Mapping[str, Any]) -> str:
    """Return which choice makes a key required."""
    return "" if key.when is None else f", and {key.when[0]} = {done[key.when[0]]!r} needs it"


def _nearest(word: str, accepted: Iterable[str]) -> str:
    close = difflib.get_close_matches(word.lower(), list(accepted), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _names(keys: Sequence[Key]) -> list[str]:
    return list(dict.fromkeys(key.name for key in keys))


def _shown(value: Any) -> str:
    """Return a value roughly as in TOML, truncated to fit a message."""
    try:
        plain = isinstance(value, (bool, list, dict))
        text = json.dumps(value, default=str) if plain else shown(value)
    except ValueError:
        text = shown(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
