"""Links from the documentation to other files of the repository lead somewhere on the site.

Pages link as they lie in the repository, so that the links work there too. Files outside docs/
that pages link to become pages or files of the site, under project/.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
OUTSIDE = (
    *("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "CITATION.cff"),
    *("benchmarks/README.md", "src/fedavot/experiments/study.toml"),
    *("examples/[!g]*/README.md", "examples/*/*.py", "examples/*/*.toml", "examples/*/*.txt"),
    *("examples/*/expected/*", "studies/*/README.md", "studies/*/results/*"),
)
GALLERY = "examples/gallery/README.md"  # a page of its own: see gallery.py
LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def on_files(files: Any, config: Any) -> Any:
    """Add the files outside docs/ that are part of the site."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            place = "project/" + path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links at where their targets are on the site."""
    here = page.file.src_uri
    inside = not here.startswith("project/")
    source = "docs/" + here if inside else here.removeprefix("project/")

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        if target == GALLERY:
            place = "gallery/index.md"
        elif target.startswith("docs/"):
            place = target.removeprefix("docs/")
        else:
            place = "project/" + target
        return link[1] + posixpath.relpath(place, posixpath.dirname(here) or ".")

    return LINK.sub(moved, markdown)
