"""Read outside data of every kind, most of it damaged, edited or made up.

    python -m attacks.fuzz --seed 0 [--inputs 1000] [--entry log --entry reply ...] [--only NUMBER]

Inputs are derived from valid ones: flipped bits, bytes cut off, moved or overwritten, values of
another type, NaN, deep nesting, wrong shapes, odd names. Each must be refused by one of the
library's own errors, or give what independent checks find proper, without a warning, within 20 CPU
seconds and 6 GB. Inputs are read in processes of their own, so that one that ends the process, or
does not come back, is found as well. What is found is printed with its number, which reproduces it.
"""

import sys

from attacks import configs, flower, logs, saved_files
from attacks.campaign import main

ENTRIES = {
    "log": (logs.logs, 30_000),
    "importance": (logs.tables, 30_000),
    "config": (configs.configs, 30_000),
    "saved": (saved_files.saved, 40_000),
    "reply": (flower.replies, 30_000),
    "folder": (flower.folders, 15_000),
}
"""How the judge of every entry is made, and how many inputs it gets."""


if __name__ == "__main__":
    sys.exit(main("fuzz", __doc__, ENTRIES))
