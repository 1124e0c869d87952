"""The gallery's scripts run, print what they say, draw what they promise, and stay short."""

import ast
import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "gallery"
SCRIPTS = sorted(FOLDER.glob("*.py"))


def named(path):
    return path.stem


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_a_script_prints_what_it_says_and_draws_its_figure(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    source = path.read_text(encoding="utf-8")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(path))
    shown = source.partition("\n# Prints:\n")[2]
    assert shown
    assert "".join(f"# {line}\n" for line in printed.getvalue().splitlines()) == shown
    drawn = {figure.name for figure in tmp_path.glob("*.png")}
    assert drawn == ({f"{path.stem}.png"} if ".savefig(" in source else set())


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_a_script_is_short_and_introduced(path):
    source = path.read_text(encoding="utf-8")
    program = source.partition("\n# Prints:\n")[0]
    title, _, text = ast.get_docstring(ast.parse(source)).partition("\n\n")
    code = program.split('"""', 2)[2].strip().splitlines()
    assert title.endswith(".")
    assert text
    assert 10 <= len(code) <= 40


def test_the_readme_lists_every_script_by_its_title():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    titles = {
        path.name: ast.get_docstring(ast.parse(path.read_text("utf-8"))).partition(".\n\n")[0]
        for path in SCRIPTS
    }
    assert {name: title for title, name in re.findall(r"\[(.*)\]\((.*)\)", readme)} == titles


def test_the_pictures_of_the_theory_are_drawn_by_one_script(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["pictures.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "docs" / "_site" / "pictures.py"), run_name="__main__")
    pages = "".join(
        (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("theory", "steady")
    )
    assert {path.name for path in tmp_path.iterdir()} == set(re.findall(r"figures/(.*?)\)", pages))
