"""Parquet in memory to a table, on the calling thread and no other.

Arrow reads on threads of its own by default and may leave some of them at work when the call has
returned. One that holds a Python file object while the interpreter is taken down hangs or aborts
the process, after everything has been done and written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa


MOST_VALUES: Final = 2**30
"""Most values of a table: one value repeated a milliard times takes a few bytes in a file."""


def read_parquet(data: bytes) -> pa.Table:
    """Return the table of a Parquet file that is in memory.

    Raises:
        pyarrow.ArrowInvalid: It is no whole Parquet file, or holds more than `MOST_VALUES`.
        OSError: Arrow says it is damaged further in.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    held = pq.read_metadata(pa.BufferReader(data))
    if held.num_rows * held.num_columns > MOST_VALUES:
        raise pa.ArrowInvalid(f"it says that it holds {held.num_rows} rows: split it")
    return pq.read_table(  # noqa: TID251
        pa.BufferReader(data), use_threads=False, pre_buffer=False
    )
