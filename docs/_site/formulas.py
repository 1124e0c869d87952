"""Formulas become MathML when the site is built, so that browsers need no script for them."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</(?:span|div)>', re.DOTALL
)


# Browsers put no space between the name of a function and what it is applied to.
NAMED = re.compile(r"(\\(?:log|exp|max|min)) (?=[A-Za-z\\])")
LONG = 40
"""A formula of more letters than this may be too wide for a telephone, and gets to scroll."""


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Replace the LaTeX that Markdown has marked by MathML."""

    def written(found: re.Match[str]) -> str:
        tag, latex = found.groups()
        kind = "formula long" if len(latex) > LONG else "formula"
        display = "block" if tag == "div" else "inline"
        spaced = NAMED.sub(r"\1\\,", html.unescape(latex))
        return f'<{tag} class="{kind}">{convert(spaced, display=display)}</{tag}>'

    return FORMULA.sub(written, content)
