"""Run the Python blocks of pages, and compare what they print with what the pages show.

    python .ci/page.py README.md docs/tutorial.md

Runs in whatever environment it is started in, which needs nothing but the library. A page that
comes to a block whose extra is not installed ends there: the exit status is then 3, and the last
line names the extra.
"""

import contextlib
import io
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)
LACKS_EXTRA = 3
IMPORTED = {"flwr": "flower", "jax": "training", "torch": ""}
"""Packages that blocks import themselves, and the extras that bring them; none brings PyTorch, and
a page whose block needs it ends there with status 0."""


def run(page):
    """Run the blocks of a page; return the extra that the next one needs, "" at the end."""
    from fedavot.errors import MissingPackageError

    names, done = {"__name__": "__docs__"}, 0
    for code, shown in BLOCK.findall(Path(page).read_text(encoding="utf-8")):
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(code, page, "exec"), names)
        except MissingPackageError as error:
            print(f"{page}: {done} blocks give what they show, and the next needs an extra")
            return re.search(r"fedavot\[([a-z]+)\]", str(error))[1]
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in IMPORTED:
                raise
            print(f"{page}: {done} blocks give what they show, and the next imports {package}")
            return IMPORTED[package]
        if printed.getvalue() != shown:
            sys.exit(f"{page}: this block printed\n{printed.getvalue()}\n\n{code}")
        done += 1
    print(f"{page}: {done} blocks give what they show")
    return ""


if __name__ == "__main__":
    lacking = [extra for page in sys.argv[1:] if (extra := run(page))]
    if lacking:
        print(lacking[-1])
        sys.exit(LACKS_EXTRA)
