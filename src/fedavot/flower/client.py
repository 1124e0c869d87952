"""The client's side: its name, and the correction of its drift."""

import functools

from flwr.clientapp import ClientApp

from fedavot.flower.memory.correction import correcting
from fedavot.flower.who.asking import ACTION, tell_name


def introduce(app: ClientApp) -> ClientApp:
    """Make a ClientApp tell the server its client name when asked, and able to correct its drift.

    Only nodes without a registered name are asked, once each. The answer is the value in the node
    configuration under the key that the server asks for. `correction` works in the train functions
    of the app.

    Parameters
    ----------
    app : ClientApp
        The app, to which a query function for the action "fedavot" is added, and a mod around its
        train functions.

    Returns
    -------
    ClientApp
        The same app.
    """
    # Without the app's mods, which may expect a model in every message. An app that was introduced
    # before, or has a function of its own, keeps it.
    app._registered_funcs.setdefault(f"query.{ACTION}", tell_name)
    if correcting not in app._mods:
        # Train functions may be registered before this line or after it. The outermost mod, so that
        # the others see the same messages as without it.
        app._mods = [correcting, *app._mods]
        for name, call in list(app._registered_funcs.items()):
            if name.startswith("train."):
                app._registered_funcs[name] = functools.partial(correcting, call_next=call)
    return app
