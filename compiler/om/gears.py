"""Gears: the input sizes that one artifact is built for, and how the graph protobuf names them.

Layout of ATC (om-format.md section 9): the root graph looks the wanted sizes up in a table and
runs one of several subgraphs, each with static shapes. `gear_split` writes it, `gear_merge` reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

Dims: TypeAlias = tuple[int, ...]

SHAPE_DATA = "ascend_mbatch_shape_data"
TABLE = "ascend_mbatch_shape_const"
INDEX = "ascend_mbatch_shape_mapindex"
CASE = "ascend_mbatch_shape_case"
ROOT_NAMES = (SHAPE_DATA, TABLE, INDEX, CASE)

BATCH_NUM = "_batch_num"
SIZES = "_pred_value_"  # + number of the gear
ORDER = "user_designate_shape_order"
INSERTED = "mbatch-inserted-node"
KIND = "mbatch_dynamic_type"
LABEL = "_batch_label"
PARENT_INDEX = "_parent_node_index"
OPEN_DIMS = "_mbatch_origin_input_dims"
OUTPUT_DIMS = "_dynamic_output_dims"
GEAR_ATTRS = (LABEL, PARENT_INDEX)
"""Attributes that a gear's subgraph has and the model does not."""


class GearKind(IntEnum):
    """Which sizes gears vary, in ATC's numbering."""

    BATCH = 1
    IMAGE = 2
    DIMS = 3


@dataclass(frozen=True)
class Gear:
    """One set of sizes.

    Attributes:
        sizes: The sizes as the option gives them: one batch, height and width, or one per -1.
        inputs: Input name -> its shape in this gear, for all tensor inputs.
    """

    sizes: Dims
    inputs: Mapping[str, Dims]

    @property
    def elements(self) -> int:
        """How many elements all inputs have together."""
        return sum(math.prod(dims) for dims in self.inputs.values())

    def __str__(self) -> str:
        """E.g. ``x[4,3,224,224], mask[4,77]``."""
        return ", ".join(f"{name}[{','.join(map(str, d))}]" for name, d in self.inputs.items())


@dataclass(frozen=True)
class GearSet:
    """The gears of a model.

    Attributes:
        kind: Which sizes they vary.
        order: Input names in the order in which the sizes were given.
        gears: The gears, in the order given.
    """

    kind: GearKind
    order: tuple[str, ...]
    gears: tuple[Gear, ...]

    @property
    def largest(self) -> int:
        """The number of the gear that runs when none is chosen."""
        return max(range(len(self.gears)), key=lambda index: self.gears[index].elements)


@dataclass(frozen=True)
class GearPlan:
    """What the writer needs.

    Attributes:
        gears: The gears.
        shapes: For each gear, shapes of values by scope and name (`core.graphs.Scoped`); values
            whose shape depends on data are left out.
    """

    gears: GearSet
    shapes: Sequence[Mapping[str, Dims]]


def suffix(number: int) -> str:
    """Return what names of ops and graphs of a gear end with."""
    return f"_ascend_mbatch_batch_{number}"
