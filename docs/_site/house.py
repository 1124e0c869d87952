"""Write the list of modules of docs/house.md: every module by the first sentence of its docstring.

    python docs/_site/house.py

What stands before the list is written by hand. A test compares the page with the sources.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE, PAGE = ROOT / "src" / "fedavot", ROOT / "docs" / "house.md"
HEAD = "## Every module"


def modules() -> str:
    """Return the list, one section per folder."""
    lines = [HEAD, ""]
    folders = sorted({path.parent for path in SOURCE.rglob("*.py")})
    for folder in folders:
        name = folder.relative_to(SOURCE.parent).as_posix()
        lines += [f"**{name}**", "", "| module | what it is |", "|---|---|"]
        lines += [f"| `{path.stem}` | {_sentence(path)} |" for path in sorted(folder.glob("*.py"))]
        lines.append("")
    return "\n".join(lines)


def _sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


def main() -> None:
    """Replace the list in the page."""
    before = PAGE.read_text(encoding="utf-8").split(HEAD)[0]
    PAGE.write_text(before + modules(), encoding="utf-8")


if __name__ == "__main__":
    main()
