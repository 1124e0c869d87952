"""The gallery: the scripts of examples/gallery, run when the site is built, with what they show.

A script begins with a docstring, whose first line is its title, and ends with a comment that has
what it prints. A figure that it saves under its own name is shown above the code. The README
beside the scripts is the gallery's first page, and has their order.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

FOLDER = Path(__file__).parents[2] / "examples" / "gallery"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
SCRIPTS = [FOLDER / f"{name}.py" for name in re.findall(r"\]\((\w+)\.py\)", README)]
# The site's environment has no JAX and no Matplotlib: the Makefile names one that has.
PYTHON = os.path.abspath(os.environ.get("GALLERY_PYTHON", sys.executable))


def on_config(config: Any) -> Any:
    """List the examples in the navigation."""
    for entry in config.nav:
        if "Gallery" in entry:
            entry["Gallery"] = [entry["Gallery"], *(f"gallery/{one.stem}.md" for one in SCRIPTS)]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Run the examples, and add their pages and figures."""
    index = re.sub(r"\]\((\w+)\.py\)", r"](\1.md)", README)
    files.append(File.generated(config, "gallery/index.md", content=index))
    with ThreadPoolExecutor(2) as pool:
        for path, figure in zip(SCRIPTS, pool.map(run, SCRIPTS), strict=True):
            place = f"gallery/{path.stem}"
            page = page_of(path, drawn=figure is not None)
            files.append(File.generated(config, f"{place}.md", content=page))
            if figure is not None:
                files.append(File.generated(config, f"{place}.png", content=figure))
    return files


def run(path: Path) -> bytes | None:
    """Run a script in a folder of its own, check what it prints, and return its figure, if any."""
    comment = path.read_text(encoding="utf-8").partition("\n# Prints:\n")[2]
    with tempfile.TemporaryDirectory() as folder:
        command = [PYTHON, "-W", "error", str(path)]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, encoding="utf-8", check=False
        )
        if (
            done.returncode
            or "".join(f"# {line}\n" for line in done.stdout.splitlines()) != comment
        ):
            raise PluginError(f"{path} does not print what it says:\n{done.stdout}{done.stderr}")
        drawn = Path(folder, path.stem + ".png")
        return drawn.read_bytes() if drawn.exists() else None


def page_of(path: Path, *, drawn: bool) -> str:
    """Return the page of an example, in Markdown."""
    source = path.read_text(encoding="utf-8")
    title, _, text = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")
    program, _, comment = source.partition("\n# Prints:\n")
    code = program.split('"""', 2)[2].strip()
    printed = "".join(line[2:] + "\n" for line in comment.splitlines())
    figure = f"![{title}]({path.stem}.png)\n\n" if drawn else ""
    return (
        f"# {title.rstrip('.')}\n\n{text}\n\n{figure}```python\n{code}\n```\n\n"
        f"It prints:\n\n```text\n{printed}```\n\n"
        f"The script is [{path.name}](../../examples/gallery/{path.name}).\n"
    )
