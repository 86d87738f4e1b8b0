"""Figures: one of ours beside one of a peer, and whether it reaches its goal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """The unit of a figure. Less is always better."""

    SECONDS = "s"
    SECONDS_PER_COMMIT = "s/commit"
    BYTES = "bytes"


class Verdict(Enum):
    """Whether a goal was reached; NONE without a goal, or at other sizes than the goal's."""

    PASS = "pass"
    MISS = "miss"
    NONE = "-"


@dataclass(frozen=True, slots=True)
class MostTimes:
    """A goal: at most this multiple of the peer's figure."""

    factor: float


@dataclass(frozen=True, slots=True)
class AtMost:
    """A goal: at most this figure, independent of the peer."""

    figure: float


Goal = MostTimes | AtMost


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the result. `ours` and `peer` are the medians of the runs in `samples`."""

    name: str
    unit: Unit
    ours: float
    peer_name: str
    peer: float
    goal: Goal | None = None
    is_goal_judged: bool = True
    note: str = ""
    samples: Mapping[str, tuple[float, ...]] | None = None

    @property
    def ratio(self) -> float:
        """Our figure divided by the peer's: below 1 is better than the peer."""
        return self.ours / self.peer

    @property
    def verdict(self) -> Verdict:
        """Whether the goal was reached."""
        if self.goal is None or not self.is_goal_judged:
            return Verdict.NONE
        match self.goal:
            case MostTimes(factor):
                is_reached = self.ratio <= factor
            case AtMost(figure):
                is_reached = self.ours <= figure
        return Verdict.PASS if is_reached else Verdict.MISS

    @property
    def goal_text(self) -> str:
        """The goal as text; empty without one."""
        match self.goal:
            case MostTimes(factor):
                return f"≤ {factor:g} times {self.peer_name}"
            case AtMost(figure):
                return f"≤ {amount_text(figure, self.unit)}"
            case None:
                return ""

    @property
    def judged_text(self) -> str:
        """What the goal is compared with: the ratio, or our figure."""
        if isinstance(self.goal, AtMost):
            return amount_text(self.ours, self.unit)
        return f"{self.ratio:.3g} times {self.peer_name}"


def check_goals(figures: Sequence[Figure], say: Callable[[str], object]) -> int:
    """The exit code of a check: 1 if a figure misses its goal, or if no goal was judged. `say` is told why."""
    problems = _goal_problems(figures)
    for problem in problems:
        say(problem)
    return 1 if problems else 0


def _goal_problems(figures: Sequence[Figure]) -> list[str]:
    if all(figure.verdict is Verdict.NONE for figure in figures):
        return ["no goal was judged: run the benchmarks that have goals, at full size"]
    return [
        f"missed: {figure.name}: {figure.judged_text}, goal {figure.goal_text}"
        for figure in figures
        if figure.verdict is Verdict.MISS
    ]


def amount_text(amount: float, unit: Unit) -> str:
    """A figure with three digits and a suitable unit."""
    if unit is Unit.BYTES:
        for limit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
            if amount >= limit:
                return f"{amount / limit:.3g} {name}"
        return f"{amount:.0f} B"
    suffix = "/commit" if unit is Unit.SECONDS_PER_COMMIT else ""
    if amount >= 1:
        return f"{amount:.3g} s{suffix}"
    return f"{amount * 1e3:.3g} ms{suffix}"
