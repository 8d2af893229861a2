"""The operators of the sweep, in groups."""

from . import indexing, numeric, spatial
from .case import Case

__all__ = ["CASES", "GROUPS", "Case"]

GROUPS = {**spatial.GROUPS, **indexing.GROUPS, **numeric.GROUPS}
CASES = {item.name: item for items in GROUPS.values() for item in items}
