"""Programs that draw, without drawing the same again for each failure of the disk.

Pictures take most of the time of an audit and of a study. Each is rendered once, and then only
written; which picture it is follows from what is drawn.
"""

import contextlib
import io
from unittest import mock

PIECE = 4096
"""Bytes of a picture that are written at once."""


def drawn_once(write_audit):
    """Return a function that writes audits, and draws each picture and each page only once."""
    from fedavot.audit.report import drawing, figures, page

    kept = {}

    def once(function, key):
        def call(*given, **options):
            name = (function.__name__, key(*given))
            if name not in kept:
                kept[name] = function(*given, **options)
            return kept[name]

        return call

    def png(picture):
        stream = io.BytesIO()
        write(picture, stream)
        return stream.getvalue()

    write, pictured = drawing.write_png, once(png, id)
    replaced = (
        (figures, "draw", once(figures.draw, id)),
        (page, "page", once(page.page, lambda findings, *_: id(findings))),
        (drawing, "write_png", lambda picture, stream: stream.write(pictured(picture))),
    )

    def write_again(findings, folder):
        with contextlib.ExitStack() as patches:
            for module, name, function in replaced:
                patches.enter_context(mock.patch.object(module, name, function))
            write_audit(findings, folder)

    return write_again


def rendered_once():
    """Return a `Figure.savefig` that renders curves only once, and writes them in pieces."""
    from matplotlib.figure import Figure

    kept, real = {}, Figure.savefig

    def savefig(figure, stream, *, format, **options):
        curves = [line.get_xydata().tobytes() for axes in figure.axes for line in axes.lines]
        key = (format, *curves)
        if key not in kept:
            real(figure, rendered := io.BytesIO(), format=format, **options)
            kept[key] = rendered.getvalue()
        for begin in range(0, len(kept[key]), PIECE):
            stream.write(kept[key][begin : begin + PIECE])

    return mock.patch.object(Figure, "savefig", savefig)
