"""One object for any training loop: names and models in, the next model out.

    agg = fa.Aggregator({"ann": 120, "bob": 40})
    for every round:
        model = agg.aggregate(model, {name: trained_model for those who took part})

It is the steady rule of `fedavot.rules.steady`: FedAVOT's weights, learnt from who takes part, and
the last updates of absent clients as a control variate, as far as they are worth their noise.
Clients that took different numbers of steps are normalised as FedNova does (Wang et al. 2020):
updates are per step, and the model moves by the weighted mean number of steps.
"""

import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedavot._checks import Floats, Integers, as_amount, enumerated, quoted, shown
from fedavot._files import PathLike, read_archive, write_archive
from fedavot._models import (
    Model,
    as_model,
    as_models,
    as_numpy,
    is_finite,
    is_float,
    moved,
    refuse_not_finite,
    shape_of,
)
from fedavot._simplex import total_variation
from fedavot.errors import (
    CohortError,
    FileFormatError,
    ImportanceError,
    ModelError,
    OptionError,
)
from fedavot.online import OnlineAligner
from fedavot.rules._history import History
from fedavot.rules._rows import Rows, RowsInMemory, RowsOnDisk
from fedavot.rules._server import Round, ServerMemory
from fedavot.rules.ours import constants_of, learner

FORMAT, VERSION = "fedavot-aggregator", 1
AVERAGED = ("running_mean", "running_var", "moving_mean", "moving_variance")
"""Endings of the names of entries that are averaged only: the statistics of batch normalisation."""
SHRINKING = 0.8
"""Updates shrink if the mean square of cohorts' means falls below this part of their memories'."""
LR_ADVICE = (
    "updates become smaller, and lr was not given: if the local learning rate falls, give lr= to "
    "aggregate, so that memories keep their size"
)
Amounts = Mapping[Any, float]
Steps = float | Amounts | None


@dataclass(frozen=True)
class Report:
    """What an aggregator has done so far.

    Attributes
    ----------
    rounds : int
        Number of rounds with at least one client.
    wanted, given : dict from name to float
        Each client's importance, and its mean weight over the rounds.
    gap : float
        The total variation distance between them.
    effective_cohort_size : float
        How many equally weighted clients have as much variance as the weights given.
    trust, tilt : float
        How far memories are trusted in the next round, α, and how far weights lean from equal ones
        towards the importance, s.
    expired, never : tuple of names
        Clients whose memory expired as they stayed away, and clients that never took part.
    advice : tuple of str
        What to change, if anything.
    """

    rounds: int
    wanted: dict[Any, float]
    given: dict[Any, float]
    gap: float
    effective_cohort_size: float
    trust: float
    tilt: float
    expired: tuple[Any, ...]
    never: tuple[Any, ...]
    advice: tuple[str, ...]


class Aggregator:
    """Aggregate models so that clients count by their importance, whoever takes part.

    Parameters
    ----------
    importance : mapping from name to float
        How much each client should count, above 0, such as its number of examples. Names are text
        or integers.
    correction : float
        κ, from 0 to 1: what `correction` returns is scaled by it. It helps where problems are
        convex and steps constant, and harms networks.
    trust : float, optional
        α, from 0 to 1: how far memories are trusted. If it is given, the weights are FedAVOT's in
        every round; if not, trust and tilt are learnt.
    memory : bool or path
        Where to keep each client's last update: in memory (True), or in an empty folder, for models
        that do not fit in memory once per client. False keeps none, and leaves the weights alone.
    averaged : sequence of str
        Endings of the names of entries that are averaged by the weights, and not remembered.
        Integers are averaged and rounded in any case, both by FedAVOT's weights.

    Examples
    --------
    >>> import numpy as np
    >>> agg = Aggregator({"ann": 3, "bob": 1})
    >>> agg.aggregate(np.zeros(2), {"ann": np.array([1.0, 0.0]), "bob": np.array([0.0, 4.0])})
    array([0.75, 1.  ])
    >>> agg.report().never
    ()
    """

    def __init__(
        self,
        importance: Amounts,
        *,
        correction: float = 0.0,
        trust: float | None = None,
        memory: bool | PathLike = True,
        averaged: Sequence[str] = AVERAGED,
    ) -> None:
        amounts = _as_amounts(importance)
        self._constants = constants_of(correction=correction, trust=trust)
        if memory is False and (correction or trust):
            raise OptionError("correction and trust need memory; leave out memory=False")
        if not isinstance(memory, bool | str | os.PathLike):
            raise OptionError(f"memory is {shown(memory)}; give True, False or a folder")
        if isinstance(averaged, str) or not isinstance(averaged, Collection):
            raise OptionError(f"averaged is {shown(averaged)}; give a list of endings of names")
        self._options: dict[str, Any] = {
            "correction": float(correction),
            "trust": None if trust is None else float(trust),
            "memory": memory if isinstance(memory, bool) else os.fspath(memory),
            "averaged": tuple(averaged),
        }
        self._index = {name: place for place, name in enumerate(amounts)}
        self._amounts = np.array(list(amounts.values()))
        self._aligner = learner(self._shares)
        self._memory: ServerMemory | None = None
        self._layout: dict[str, tuple[int, ...]] = {}
        self._weights: dict[Any, float] = {}
        self._given = np.zeros(len(amounts))
        self._squares = 0.0
        self._per: tuple[bool, bool] | None = None
        self._model: Any = None
        self._corrects: set[int] = set()

    @property
    def weights(self) -> dict[Any, float]:
        """The weights of the last round, by client; they sum to one."""
        return dict(self._weights)

    @property
    def trust(self) -> float:
        """How far memories are trusted in the next round, from 0 to 1."""
        return 0.0 if self._memory is None else self._memory.trust

    def __repr__(self) -> str:
        return f"Aggregator({self._members.size:,} clients, {self._aligner.rounds:,} rounds)"

    def aggregate(
        self,
        model: Any,
        trained: Mapping[Any, Any],
        *,
        steps: Steps = None,
        lr: float | None = None,
    ) -> Any:
        """Return the next model, of the kind, types and devices of this one.

        Parameters
        ----------
        model : mapping, sequence, array or pytree
            The model that the clients started from, such as a state_dict.
        trained : mapping from name to model
            Each client's model after its local steps. If it is empty, the model stays as it is.
        steps : float or mapping from name to float, optional
            Number of local steps that each client took; alike for all if not given.
        lr : float, optional
            Size of the local steps. Give it if it changes from round to round: memories are kept
            per unit of step.
        """
        return self._round(model, trained, steps, lr, are_models=True)

    def apply(
        self,
        model: Any,
        updates: Mapping[Any, Any],
        *,
        steps: Steps = None,
        lr: float | None = None,
    ) -> Any:
        """Return the next model from the clients' updates, trained model minus start.

        In asynchronous training each update has the start that its client was sent, and those that
        arrived together are a round. The parameters are those of `aggregate`.
        """
        return self._round(model, updates, steps, lr, are_models=False)

    def correction(self, name: Any, model: Any = None) -> Any:
        """Return what a client may add to each of its gradients in the next round, or None.

        It is κ (y_i − ŷ), as the client's last update y_i was a step along the negative gradient:
        a tree like the model, with zeros for entries that are averaged only. A client that has
        asked for it is taken to use it. ``model`` is needed only after `load`.
        """
        client = self._index_of(name)
        drift = None if self._memory is None else self._memory.drift(client)
        if drift is None:
            return None
        if self._per != (True, True):
            raise OptionError(
                "a correction is added to gradients; give steps= and lr= to every aggregate"
            )
        if model is None and self._model is None:
            raise OptionError("after load, pass the model too: correction(name, model)")
        like = as_model(self._model if model is None else model, what="the model")
        self._refuse_other_layout(like)
        self._corrects.add(client)
        zeros = {key: np.zeros(shape_of(leaf)) for key, leaf in like.leaves.items()}
        ends = np.cumsum([math.prod(shape) for shape in self._layout.values()])
        parts = zip(self._layout, np.split(drift, ends[:-1]), strict=False)
        return like.like(zeros | dict(parts))

    def join(self, importance: Amounts) -> None:
        """Add clients, or clients that left; the amounts compare with those of the others."""
        amounts = _as_amounts(importance)
        for name in amounts:
            if name in self._index and self._amounts[self._index[name]] > 0:
                raise ImportanceError(
                    f"client {quoted(name)} is there already; use reweigh to change its importance"
                )
        self._reweigh(amounts)

    def reweigh(self, importance: Amounts) -> None:
        """Change the importance of clients from now on; the amounts compare with the others'."""
        amounts = _as_amounts(importance)
        for name in amounts:
            self._index_of(name)
        self._reweigh(amounts)

    def leave(self, name: Any) -> None:
        """Take out a client, with its memory."""
        self._index_of(name)
        if self._members.size == 1:
            raise ImportanceError(f"client {quoted(name)} is the last one; another must stay")
        self._reweigh({name: 0.0})

    def report(self) -> Report:
        """Return what has been done so far."""
        names = list(self._index)
        members, rounds = self._members, self._aligner.rounds
        shares, means = self._shares, self._given / max(rounds, 1)
        history = None if self._memory is None else self._memory.history
        seen = np.zeros(len(names)) if history is None else history.seen
        old, new = (0.0, 0.0) if history is None else history.evidence[1:3].tolist()
        shrinking = self._per is not None and not self._per[1] and new < SHRINKING * old
        return Report(
            rounds=rounds,
            wanted={names[i]: float(shares[i]) for i in members},
            given={names[i]: float(means[i]) for i in members},
            gap=float(total_variation(shares, means)) if rounds else 0.0,
            effective_cohort_size=rounds / self._squares if rounds else 0.0,
            trust=self.trust,
            tilt=1.0 if self._memory is None else self._memory.tilt(),
            expired=tuple(names[i] for i in members if seen[i] < 0),
            never=tuple(names[i] for i in members if not means[i]),
            advice=(LR_ADVICE,) if shrinking else (),
        )

    def save(self, path: PathLike) -> None:
        """Write the whole state, or nothing; with memory in a folder, its rows stay there."""
        memory = self._memory
        header: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "names": list(self._index),
            "options": self._options,
            "layout": self._layout,
            "weights": list(self._weights.items()),
            "squares": self._squares,
            "per": self._per,
            "corrects": sorted(self._corrects),
        }
        aligner = self._aligner.state_dict(arrays=True)
        arrays = {f"aligner.{key}": value for key, value in aligner.items()}
        arrays |= {"amounts": self._amounts, "given": self._given}
        rows = None if memory is None else memory.rows
        if memory is not None:
            header |= {"kind": memory.rows.dtype.name, "size": memory.rows.size}
            arrays |= {f"history.{key}": value for key, value in memory.history._asdict().items()}
        if isinstance(rows, RowsInMemory):
            arrays |= {f"row.{client}": row for client, row in rows.arrays.items()}
        if isinstance(rows, RowsOnDisk):
            header |= {"mark": rows.before_save(), "places": list(rows.places.items())}
        write_archive(path, arrays | {"header": np.array(json.dumps(header))})
        if isinstance(rows, RowsOnDisk):
            rows.after_save()

    @classmethod
    def load(cls, path: PathLike, *, memory: PathLike | None = None) -> Self:
        """Read what `save` wrote; it continues bit for bit as the saved one would.

        ``memory`` is the folder of the memory, if it has moved.
        """
        arrays = read_archive(path)
        header = json.loads(str(arrays.pop("header", "{}")))
        if (header.get("format"), header.get("version")) != (FORMAT, VERSION):
            raise FileFormatError(
                f"{os.fspath(path)} holds {header.get('format')!r} of version "
                f"{header.get('version')!r}; this library reads {FORMAT!r} of version {VERSION}"
            )
        options = header["options"]
        if memory is not None and bool in (type(memory), type(options["memory"])):
            raise OptionError("memory= is for a folder that has moved; leave it out")
        options["memory"] = options["memory"] if memory is None else memory
        loaded = cls(dict.fromkeys(header["names"], 1.0), **options)
        loaded._amounts, loaded._given = arrays["amounts"], arrays["given"]
        loaded._aligner = OnlineAligner.from_state(_under("aligner.", arrays))
        loaded._layout = {key: tuple(shape) for key, shape in header["layout"].items()}
        loaded._weights, loaded._squares = dict(header["weights"]), header["squares"]
        loaded._per = None if header["per"] is None else tuple(header["per"])
        loaded._corrects = set(header["corrects"])
        if "kind" in header:
            saved = {}
            if "mark" in header:
                saved = {"mark": header["mark"], "places": dict(header["places"])}
            loaded._memory = loaded._new_memory(header["size"], np.dtype(header["kind"]), **saved)
            for client, row in _under("row.", arrays).items():
                loaded._memory.rows.begin([int(client)])
                loaded._memory.rows.write(int(client), 0, row)
                loaded._memory.rows.end()
            loaded._memory.history = History(*(arrays[f"history.{key}"] for key in History._fields))
        return loaded

    @property
    def _shares(self) -> Floats:
        return np.asarray(self._amounts / self._amounts.sum())

    @property
    def _members(self) -> Integers:
        """Clients that have not left."""
        return np.flatnonzero(self._amounts > 0)

    def _index_of(self, name: Any) -> int:
        client = self._index.get(name, -1) if isinstance(name, str | int | np.integer) else -1
        if client < 0 or self._amounts[client] == 0:
            names = enumerated(quoted(name) for name, i in self._index.items() if self._amounts[i])
            raise CohortError(
                f"there is no client {shown(name)}; the clients are {names}; add it with join"
            )
        return client

    def _reweigh(self, amounts: dict[Any, float]) -> None:
        """Use new amounts, also for clients that are new."""
        new = [name for name in amounts if name not in self._index]
        index = self._index | {name: self._amounts.size + k for k, name in enumerate(new)}
        after = np.pad(self._amounts, (0, len(new)))
        after[[index[name] for name in amounts]] = list(amounts.values())
        shares = after / after.sum()
        if self._memory is not None:
            self._memory.reweigh(shares)
        if new:
            self._aligner.join(np.zeros(len(new)))
        self._aligner.reweigh(shares)
        self._amounts, self._index = after, index
        self._given = np.pad(self._given, (0, len(new)))

    def _refuse_other_layout(self, model: Model) -> None:
        """Refuse a model without the entries that are remembered."""
        for key, shape in self._layout.items():
            actual = shape_of(model.leaves[key]) if key in model.leaves else "nothing"
            if actual != shape:
                raise ModelError(
                    f"the model has {actual} at {key!r}, where models so far had an array of shape "
                    f"{shape}; give another model an Aggregator of its own"
                )

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused
    def _round(self, model: Any, updates: Any, steps: Any, lr: Any, *, are_models: bool) -> Any:
        """Check everything, then aggregate."""
        what, noun = ("trained", "model") if are_models else ("updates", "update")
        if not isinstance(updates, Mapping):
            raise ModelError(f"{what} is {shown(updates)}; give a mapping from client to model")
        cohort = np.array([self._index_of(name) for name in updates], np.int64)
        models = as_models(model, updates, noun=noun)
        base, *ends = models.values()
        self._refuse_other_layout(base)
        if not updates:
            return model
        per = (steps is not None, lr is not None)
        if self._per not in (None, per):
            raise OptionError(
                "steps and lr must be given in every round or in none: memories are kept per unit "
                "of what was given in the first round"
            )
        spans = _as_steps(steps, list(updates))
        spans *= 1.0 if lr is None else as_amount(lr, what="lr", positive=True)
        weights = self._aligner.weights(cohort)
        if not self._layout:
            self._begin(models)
        layout, turn, used = self._layout, None, weights
        if self._memory is not None:
            corrected = np.isin(cohort, list(self._corrects))
            turn = Round(self._memory, cohort, weights, spans=spans, corrected=corrected)
            used = turn.weights
        arrays, at = {}, 0
        for key, leaf in (layout | base.leaves).items():  # rows are in the order of the layout
            first = as_numpy(leaf).reshape(-1)
            others = [as_numpy(each.leaves[key]).reshape(-1) for each in ends]
            if turn is not None and key in layout:
                arrays[key] = np.empty(first.size, turn.kind)
                turn.move(at, others, first, arrays[key], are_models=are_models)
                at += first.size
            else:
                shares = weights @ spans * weights / spans if key in layout else weights
                arrays[key] = moved(first, others, shares, are_models)
            if not is_finite(arrays[key], first.dtype):
                refuse_not_finite(key, models)
        result = self._model = base.like(arrays)
        if turn is not None:
            turn.end()
        self._per = per
        self._aligner.observe(cohort)
        names = np.array(list(self._index), object)[cohort]
        self._weights = dict(zip(names, used.tolist(), strict=True))
        self._given[cohort] += used
        self._squares += float(used @ used)
        self._corrects -= set(cohort.tolist())
        return result

    def _begin(self, models: Mapping[str, Model]) -> None:
        """Take over which entries are remembered, and make room for them."""
        model = models["the model"]
        for key in model.leaves:  # what has to be left out must not become part of the layout
            if not all(np.isfinite(as_numpy(each.leaves[key])).all() for each in models.values()):
                refuse_not_finite(key, models)
        layout = {
            key: shape_of(leaf)
            for key, leaf in model.leaves.items()
            if is_float(leaf) and not key.endswith(self._options["averaged"])
        }
        kinds = (as_numpy(model.leaves[key]).dtype for key in layout)
        if self._options["memory"] is not False:
            size = sum(int(np.prod(shape)) for shape in layout.values())
            self._memory = self._new_memory(size, np.result_type(np.float32, *kinds))
        self._layout = layout

    def _new_memory(self, size: int, kind: np.dtype[Any], **saved: Any) -> ServerMemory:
        """Make room for the memory of models of a size, or take up the rows of a saved state."""
        rows: Rows = RowsInMemory(size, kind)
        if isinstance(self._options["memory"], str):
            rows = RowsOnDisk(self._options["memory"], size, kind, **saved)
        return ServerMemory(self._shares, rows, self._constants)


def _as_amounts(importance: Amounts) -> dict[Any, float]:
    """Return positive amounts by client name."""
    if not isinstance(importance, Mapping) or not importance:
        raise ImportanceError(
            f"importance is {shown(importance)}; give a mapping from client name to a positive "
            'amount, such as {"ann": 120, "bob": 40}'
        )
    amounts = {}
    for key, amount in importance.items():
        name = key.item() if isinstance(key, np.generic) else key
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise ImportanceError(f"client {shown(name)} has no name; use text or integers")
        if isinstance(amount, str):
            raise ImportanceError(f"client {quoted(name)} has the text {amount!r}; give a number")
        try:
            amounts[name] = as_amount(amount, what="importance", positive=True)
        except OptionError as cause:
            raise ImportanceError(f"client {quoted(name)}: {cause}") from None
    return amounts


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the saved values whose names begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): value if value.ndim else value.item()
        for name, value in arrays.items()
        if name.startswith(prefix)
    }


def _as_steps(steps: Any, names: list[Any]) -> Floats:
    """Return the number of local steps of each client."""
    if not isinstance(steps, Mapping):
        steps = dict.fromkeys(names, 1.0 if steps is None else steps)
    missing = [name for name in names if name not in steps]
    if missing:
        raise OptionError(f"steps has no number for client {quoted(missing[0])}; give one for each")
    return np.array(
        [as_amount(steps[name], what=f"steps of {quoted(name)}", positive=True) for name in names]
    )
