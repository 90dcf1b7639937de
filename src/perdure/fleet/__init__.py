"""The fleet: who is alive, who takes which work, who sheds load, who does the elected chores.

Used by every kind of node alike. All of it is an optimisation or a chore: two nodes that disagree
for a while do double work in vain, but they cannot harm the data, because every write of a run is
fenced by its lease in the store.
"""

from perdure.fleet.assignment import Assignment
from perdure.fleet.chores import Chore, ChoreLost
from perdure.fleet.cpu import CpuMeter
from perdure.fleet.errors import InvalidSetting
from perdure.fleet.membership import Fleet, Member
from perdure.fleet.shedding import SheddingCurve

__all__ = [
    "Assignment",
    "Chore",
    "ChoreLost",
    "CpuMeter",
    "Fleet",
    "InvalidSetting",
    "Member",
    "SheddingCurve",
]
