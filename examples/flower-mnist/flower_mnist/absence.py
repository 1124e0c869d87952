"""Absent clients, simulated by a mod of the ClientApp.

Simulated nodes never leave, so absence is simulated: a client that is absent in a round declines to
train, as a device would that is in use or on battery. It replies with an error, which every
strategy leaves out of the average; in FedAVOT's log it is asked and failed. The mod works in the
same way on a SuperNode. In a real deployment, where clients come and go, leave it out.
"""

from flwr.app import Context, Error, Message, MessageType
from flwr.clientapp.typing import ClientAppCallable

from flower_mnist.clients import is_there

ABSENT = 1000
"""Code of the error, above those that Flower itself uses."""


def sometimes_absent(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Decline a request to train if the client is absent in this round; otherwise pass it on.

    Parameters
    ----------
    message : Message
        Message from the server; only requests to train are declined.
    context : Context
        Context with the client's index in the node configuration and the seed in the run
        configuration.
    call_next : function of (message, context)
        The app.
    """
    if message.metadata.message_type != MessageType.TRAIN:
        return call_next(message, context)
    client = int(context.node_config["partition-id"])
    round_number = int(message.content["config"]["server-round"])
    if is_there(client, round_number=round_number, seed=int(context.run_config["seed"])):
        return call_next(message, context)
    return Message(Error(ABSENT, "absent in this round"), reply_to=message)
