"""Read observations and factors from files: arrays, tables and the formats of laboratories.

Nothing is ever unpickled, and sizes are compared with the memory before values are read.
"""

from isolatent.pairs.readers.reading import (
    READABLE_SUFFIXES,
    VIDEO_SUFFIXES,
    Observations,
    check_data_path,
    chunks_of_rows,
    columns_by_name,
    read_factors,
    read_observations,
    read_pairs,
)
from isolatent.pairs.readers.selection import Selection

__all__ = [
    "READABLE_SUFFIXES",
    "VIDEO_SUFFIXES",
    "Observations",
    "Selection",
    "check_data_path",
    "chunks_of_rows",
    "columns_by_name",
    "read_factors",
    "read_observations",
    "read_pairs",
]
