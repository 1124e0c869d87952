"""A process that reads a Parquet file and passes on what it holds, so that only it can fail.

On some damaged files the reader does not raise but aborts, and takes its process along. `parquet`
starts this file as a program, by its path, and talks to it through pipes: on standard output come
messages, each a letter, its length in eight bytes, and so many bytes; on standard input one line of
JSON comes back, the names of the columns wanted.

    H   the columns' names and the number of rows, as JSON
    B   a batch of rows, as an Arrow file
    E   what the reader raised
    Z   nothing: all rows were passed on

It imports nothing of the library, which would cost more time than the file.
"""

import io
import json
import sys
from contextlib import suppress

BATCH = 1 << 19


def main(path: str) -> None:
    """Read a file: its header, then the columns that are asked for."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a damaged file leaves no core dump
    import polars as pl

    try:
        scan = pl.scan_parquet(path, glob=False)
        header = list(scan.collect_schema())
        total = int(scan.select(pl.len()).collect().item())
        send(b"H", json.dumps([header, total]).encode())
        asked = sys.stdin.readline()
        if not asked:
            return
        for frame in scan.select(json.loads(asked)).collect_batches(chunk_size=BATCH):
            packed = io.BytesIO()
            frame.write_ipc(packed)
            send(b"B", packed.getbuffer())
        send(b"Z", b"")
    except BrokenPipeError:
        return
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, MemoryError) as cause:
        send(b"E", f"{cause}".partition("\n")[0].encode(errors="backslashreplace"))


def send(kind: bytes, content: bytes | memoryview) -> None:
    """Write one message."""
    stream = sys.stdout.buffer
    stream.write(kind + len(content).to_bytes(8, "big"))
    stream.write(content)
    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1])
