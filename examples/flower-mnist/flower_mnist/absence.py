"""Clients that are sometimes not there, as a mod of the ClientApp.

Simulated nodes never leave, so absence is played: a client that is not there in a round declines
to train, as a device does that is in use or on battery. Its reply is an error, which every
strategy leaves out of the average, and FedAVOT's log counts it as asked and failed. The mod does
the same on a SuperNode; where clients come and go by themselves, leave it out.
"""

from flwr.app import Context, Error, Message, MessageType
from flwr.clientapp.typing import ClientAppCallable

from flower_mnist.clients import is_there

NOT_THERE = 1000
"""The error's code, above those that Flower itself uses."""


def sometimes_absent(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Pass a request to train on if the client is there in this round, and decline it otherwise.

    Parameters
    ----------
    message : Message
        What the server sent; only requests to train are declined.
    context : Context
        Whose node configuration has the client's number, and whose run configuration the seed.
    call_next : function of (message, context)
        The app.
    """
    if message.metadata.message_type != MessageType.TRAIN:
        return call_next(message, context)
    client = int(context.node_config["partition-id"])
    round_number = int(message.content["config"]["server-round"])
    if is_there(client, round_number=round_number, seed=int(context.run_config["seed"])):
        return call_next(message, context)
    return Message(Error(NOT_THERE, "not there in this round"), reply_to=message)
