"""Every kind of saved file, damaged and edited, as inputs of `fuzz`.

Half of the inputs are edits of the structure, a quarter of bytes, and a quarter single bits
flipped. Reading must raise one of the library's own errors or give an equal object, to the bit.
Where an edit was sealed again, or the file claims to be from before there were checksums, it may
also give another object that is a proper one by independent checks (`saved_files`).
"""

import numpy as np

from attacks import mutations
from attacks.isolation import Fault
from attacks.saved_files import MAKERS, plain

EDITED, MANGLED = 0.5, 0.25
"""Shares of the inputs; the rest have one bit flipped."""


def saved(folder, *, kind):
    """Return the judge of one kind of saved file."""
    made = MAKERS[kind](folder)
    good = plain(made.read(made.data))

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        way, seal = rng.random(), "kept"
        if way < EDITED:
            data, seal = made.mutate(made.data, rng)
        elif way < EDITED + MANGLED:
            data = mutations.mangled(made.data, rng)
        else:
            data = mutations.flipped(made.data, rng)
        return judged(made, data, good, careful=seal != "kept")

    return judge


def judged(kind, data, good, *, careful):
    """Read bytes and return "equal", "proper", or a fault."""
    read = kind.read(data)
    if plain(read) == good:
        return "equal"
    if not careful:
        return Fault("another object")
    try:
        sound = kind.sound(read)
    except Exception as error:
        return Fault(f"no proper object, {type(error).__name__}: {str(error)[:100]}")
    return "proper" if sound else Fault("no proper object")
