"""The query for a node's client name, and what counts as an answer."""

from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from fedavot.flower.worth.records import brief

ACTION = "fedavot"
RECORD = "fedavot"
ASK_TIMEOUT = 90.0
"""Seconds that new nodes have to answer with their names."""

LONGEST_NAME = 255
"""Largest number of characters of a client name: names are in the log of every round."""


def ask(
    grid: Grid, nodes: Iterable[int], key: str, config: Mapping[str, Any], *, record: str
) -> tuple[dict[int, str], dict[int, str]]:
    """Ask nodes for their names; return the names, and why other nodes gave none, by node.

    The name is under ``key`` in the node configuration. The configuration of the current round is
    sent in the ``record`` in which the strategy sends it: mods of a ClientApp may read it, if the
    app has its own query function.
    """
    # The record that mods look for comes first, in case they take the first one.
    records = {record: ConfigRecord(dict(config)), RECORD: ConfigRecord({"key": key})}
    questions = [
        Message(RecordDict(dict(records)), node, f"query.{ACTION}", ttl=ASK_TIMEOUT)
        for node in nodes
    ]
    replies = grid.send_and_receive(questions, timeout=ASK_TIMEOUT)
    # Messages have their ids once they are sent.
    asked = {sent.metadata.dst_node_id: sent.metadata.message_id for sent in questions}
    answers, errors = {}, {}
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in asked or asked[node] not in ("", reply.metadata.reply_to_message_id):
            continue
        if reply.has_error():
            errors[node] = (
                f"its ClientApp failed with {brief(reply.error.reason)!r}; call "
                f"fedavot.flower.introduce(app) there and set {key!r} in its node configuration; a "
                "query function of its own, and the app's mods around it, must take a message "
                "without arrays"
            )
        elif RECORD in reply.content.config_records:
            told = reply.content.config_records[RECORD]
            name: Any = told.get("name")
            if name is None and "keys" in told:
                present = str(told["keys"]) or "no key at all"
                errors[node] = (
                    f"its node configuration has no key {key!r}, but {present}; "
                    "set it, or name the key that has the name with Admission(key=...)"
                )
            elif isinstance(name, str) and too_long(name):
                errors[node] = too_long(name)
            elif isinstance(name, str) and name:
                answers[node] = name
            else:
                errors[node] = f"its answer has {name!r:.40} as its name, which must be text"
        else:
            errors[node] = f"its answer has no record {RECORD!r}"
    return answers, errors


def tell_name(message: Message, context: Context) -> Message:
    """Return a node's answer to the query of `ask`: its name, or the keys that it has instead."""
    key = str(message.content.config_records[RECORD]["key"])
    if key in context.node_config:
        told = ConfigRecord({"name": str(context.node_config[key])})
    else:
        told = ConfigRecord({"keys": ", ".join(map(repr, context.node_config))})
    return Message(RecordDict({RECORD: told}), reply_to=message)


def too_long(name: str) -> str:
    """Return a message if a name is too long, else an empty string."""
    if len(name) <= LONGEST_NAME:
        return ""
    return f"the name {name[:20]!r}... has {len(name)} characters, and may have {LONGEST_NAME}"
