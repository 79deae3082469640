"""Points and the late policy, from one small file: grading/policy.toml."""

from __future__ import annotations

import datetime
import math
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from labs.run import catalogue
from labs.run.errors import LabError
from labs.run.paths import ROOT

DEFAULT = ROOT / "grading/policy.toml"
Points = Annotated[float, msgspec.Meta(ge=0)]
Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
Moment = Annotated[datetime.datetime, msgspec.Meta(tz=True)]


class PerKind(msgspec.Struct, forbid_unknown_fields=True):
    """The points of an exercise that is right, by its kind."""

    question: Points
    function: Points
    bug: Points


class Late(msgspec.Struct, forbid_unknown_fields=True):
    """What lateness costs."""

    grace_hours: Points = 0.0
    percent_per_day: Percent = 0.0
    most_percent: Percent = 100.0


class Policy(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    points: PerKind
    late: Late = msgspec.field(default_factory=Late)
    due: dict[str, Moment] = {}
    """By lab."""
    term: dict[Literal["begins"], Moment] = {}

    def late_percent(self, lab: str, created: datetime.datetime | None) -> float:
        """Return the percentage that a hand-in loses; 0 if its lab has no date or its own time is unknown."""
        due = self.due.get(lab)
        if due is None or created is None or created - due <= datetime.timedelta(hours=self.late.grace_hours):
            return 0.0
        days = math.ceil((created - due) / datetime.timedelta(days=1))
        return min(self.late.percent_per_day * days, self.late.most_percent)


def read(path: Path) -> Policy:
    """Read a policy; a lab in [due] may have a short name. LabError names the file and the problem."""
    try:
        policy = msgspec.convert(tomllib.loads(path.read_text()), Policy)
        due = {catalogue.resolve(name): moment for name, moment in policy.due.items()}
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, LabError) as problem:
        raise LabError(f"{path}: {problem}; see {DEFAULT}") from None
    if len(due) < len(policy.due):
        raise LabError(f"{path}: [due] names a lab twice: {', '.join(policy.due)}")
    return msgspec.structs.replace(policy, due=due)
