"""Where names are used: in the public API, in options, in configurations and in documents.

Each use is reduced to the kind of thing that the name stands for: a count, an array, a path.
"""

import collections.abc
import dataclasses
import enum
import inspect
import os
import types
import typing
from typing import NamedTuple

import click
import numpy as np

from fedavot.audit.findings import Reached
from fedavot.audit.recommending import Estimate

# Objects in a file are known by their keys.
SHAPES = {frozenset(kind._fields): kind.__name__ for kind in (Estimate, Reached)}
SIMPLE = {int: "count", float: "number", bool: "flag", str: "text"}
SCALARS = (complex, bytes, str)
SERIES = (list, tuple, collections.abc.Sequence, collections.abc.Iterable)
# Values of these keys are by client, by group or by whatever a strategy measures.
DATA_KEYS = {"groups_by_hour", "weights", "metrics", "failed", "excluded", "refused"}


class Use(NamedTuple):
    """A name, where it is used, and the kinds of thing that it stands for there."""

    word: str
    place: str
    kinds: set


def kinds_of(annotation):
    """Return the kinds of values that an annotation allows."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        # A union takes ArrayLike apart, of whose members numbers and texts are not numpy's.
        own = [one for one in inner if not _is_from(one, "numpy._typing")]
        arrays = {"array"} if len(own) < len(inner) else set()
        return arrays.union(*(kinds_of(one) for one in own if not arrays or one not in SCALARS))
    if annotation in (inspect.Parameter.empty, typing.Any, None, types.NoneType):
        return set()
    if annotation in SIMPLE or origin is typing.Literal:
        return {SIMPLE.get(annotation, "text")}
    base = origin or annotation
    return {_kind_of_class(base, inner) if inspect.isclass(base) else str(annotation)}


def _kind_of_class(base, inner):
    if base in SERIES:
        return {str: "names", int: "indices"}.get(inner[0] if inner else None, "sequence")
    families = {np.ndarray: "array", collections.abc.Mapping: "by name", os.PathLike: "path"}
    families |= {collections.abc.Callable: "function"} if inner else {}
    return next((word for one, word in families.items() if issubclass(base, one)), base.__name__)


def _is_from(value, package):
    return (getattr(typing.get_origin(value) or value, "__module__", "") or "").startswith(package)


def is_ours(value):
    return _is_from(value, "fedavot")


def of_function(function, place, *, without=()):
    """Yield the parameters of a function."""
    for each in inspect.signature(function).parameters.values():
        if each.name not in {"self", *without}:
            yield Use(each.name, place, kinds_of(each.annotation))


def of_class(kind, place):
    """Yield the parameters, methods, properties and fields of a class."""
    if not (issubclass(kind, enum.Enum | BaseException) or getattr(kind, "_is_protocol", False)):
        yield from of_function(kind, place)
    for name, member in inspect.getmembers(kind):
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            returned = inspect.signature(member.fget).return_annotation
            yield Use(name, place, kinds_of(returned))
        elif inspect.isroutine(member) and is_ours(member):
            yield Use(name, place, {"method"})
            yield from of_function(member, f"{place}.{name}", without=prescribed(kind, name))
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            if not field.name.startswith("_"):
                yield Use(field.name, place, kinds_of(field.type))


def prescribed(kind, method):
    """Return the parameters of a method that another library's base class gives it."""
    bases = [base for base in kind.__mro__ if not is_ours(base) and hasattr(base, method)]
    return {name for base in bases for name in inspect.signature(getattr(base, method)).parameters}


def of_package(package):
    """Yield what a module offers, and the classes that its dataclasses are made of."""
    own = [name for name, value in vars(package).items() if is_ours(value)]
    names = getattr(package, "__all__", [name for name in own if not name.startswith("_")])
    waiting = [(getattr(package, name), f"{package.__name__}.{name}") for name in names]
    seen = set()
    while waiting:
        value, place = waiting.pop()
        if inspect.isfunction(value):
            yield from of_function(value, place)
        elif inspect.isclass(value) and is_ours(value) and value not in seen:
            seen.add(value)
            yield from of_class(value, place)
            if dataclasses.is_dataclass(value):
                parts: list[typing.Any] = [field.type for field in dataclasses.fields(value)]
                waiting += [(one, f"{place}.{one.__name__}") for one in parts if _is_part(one)]


def _is_part(value):
    return inspect.isclass(value) and dataclasses.is_dataclass(value) and is_ours(value)


def of_command(command, place="fedavot"):
    """Yield the options and arguments of a command and of those below it."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from of_command(inner, f"{place} {name}")
    known = {click.types.IntParamType: "count", click.types.FloatParamType: "number"}
    known |= {click.types.BoolParamType: "flag", click.types.StringParamType: "text"}
    for each in command.params:
        kind = next((word for base, word in known.items() if isinstance(each.type, base)), "path")
        for word in {each.name, *(text.lstrip("-").replace("-", "_") for text in each.opts)}:
            yield Use(word, place, {kind})


def of_configuration(tables):
    """Yield the keys of a study's file, by what they accept."""
    probes = {"count": 3, "flag": True, "names": ["a", "b"], "array": [0.5, 0.5], "text": "a"}
    for table, entries in tables.items():
        for name, key in [(name, one.key) for name, found in entries.items() for one in found]:
            accepted = {word for word, value in probes.items() if key.accepts(value)}
            if key.accepts(0.5):
                accepted = accepted - {"count"} | {"number"}
            chosen = {"text"} if key.brings else set()
            yield Use(name, f"configuration, {table}", accepted | chosen)


def of_document(content, place):
    """Yield the keys of a JSON document, by their values."""
    if isinstance(content, list):
        for each in content:
            yield from of_document(each, place)
    elif isinstance(content, dict):
        for key, value in content.items():
            yield Use(key, place, _kinds_of_value(value))
            if key not in DATA_KEYS:
                yield from of_document(value, f"{place}, {key}")


def _kinds_of_value(value):
    if isinstance(value, list):
        series = {str: "names", float: "array", int: "array", dict: "table"}
        return {series.get(type(value[0]), "list")} if value else set()
    if isinstance(value, dict):
        return {SHAPES.get(frozenset(value), "by name")}
    return set() if value is None else {SIMPLE[type(value)]}
