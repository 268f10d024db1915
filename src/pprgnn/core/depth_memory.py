"""The memory that makes adaptive depth cheap in training.

Nothing but a second pass of another depth tells what truncation leaves out on an input, and a second pass in
every step would be too slow. So the memory looks at every step, and runs the second pass when a step is unlike
those that were checked, when its turn has come, and for everything that is not a training step.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import torch
from torch import Tensor

from pprgnn.core.depth import Measured, Result, Run
from pprgnn.core.measure import PAIRS, ROUNDINGS, another_pass, estimated
from pprgnn.core.problem import Recursion
from pprgnn.core.solution import MARGIN, Depth, Sketch, Status, unit_roundoff
from pprgnn.core.training_step import SMALL, CheckedStep, Differences, TrainingStep, log_gain, look_at, rows_of

START = 8  # depth of the first pass where there is no better guess
SMALLEST = 1e-12  # below, an error is noise
SLACK = 5.0  # how far below the aim (log) an error must be to say that a pass is much too deep
TINY = 1e-12  # of ‖B‖: numbers of this size must not underflow
WARM_UP = 8  # steps that are all looked at, before only some are
SENSITIVE = 5.0  # where parts of B may grow by more than this (log), each of its rows is looked at


@dataclass
class DepthMemory:
    """Re-uses depths between the steps of a training, which then costs little more than at a fixed depth.

    A training step runs at the depth that follows from the step checked last: its error, how W and ε have moved
    since, and a margin that follows from earlier surprises. A check compares a pass with a shallower one, which
    every second time is disturbed by rounding errors as well. It takes place when input, graph, weights or output
    differ too much from those of the step checked last, and otherwise from time to time. Where every step has
    another input or graph, the depths that the last ones needed decide, and after a few only some are checked. A
    check that fails repeats the pass, deeper, until two depths agree. A solve without gradients is an answer and
    not a training step: it is always checked, and nothing is learned from it.

    With ``every`` above 1, only one of so many steps is looked at, after the first few; the others run at the
    deepest of what the last looks needed, and nothing is known about their errors. That suits trainings on many
    small graphs, where a look costs as much as the pass; answers are always measured.

    Args:
        rule: what decides where comparing does not help.
        share: of the work, for checks of steps that do not differ.
        every: one of so many training steps is looked at.
    """

    rule: Measured = field(default_factory=Measured)
    share: float = 0.03
    checks: int = field(default=0, init=False)
    every: int = 1

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew."""
        self.checks = 0
        self._last: CheckedStep | None = None
        self._before: TrainingStep | None = None  # the last training step that was looked at, checked or not
        self._depth = 0  # of the last training step
        self._of_guess = 1.0  # the share of a guessed depth that is needed
        # How much larger (log) an error was than expected, by how far weights and input had moved.
        self._surprises: deque[float] = deque(maxlen=8)
        self._needed: deque[int] = deque(maxlen=16)  # by unlike steps
        self._unlike: deque[Differences] = deque(maxlen=8)
        self._unlike_steps = 0  # in a row
        self._unchecked = 0  # of these, since the last check
        self._good_checks = 0  # of these, in a row
        self._work = 0.0  # since the last check
        self._failed = 0  # checks in a row that ended without two depths that agree
        self._pause = 0  # steps until the next attempt
        self._failure: Depth | None = None
        self._rounding = False  # whether rounding was too large at the last check
        self._peak = 0.0  # by how much (log) small entries of B may grow
        self._delicate = False  # whether rounding may decide between branches
        self._doubtful = False  # whether every step must be checked
        self._looks = 0
        self._looked: deque[int] = deque(maxlen=4)  # depths of the last steps that were looked at
        self._unseen = 0  # steps since

    def choose(self, problem: Recursion, tol: float, max_depth: int, levels: int) -> Depth:
        """As :attr:`rule` does: without a pass there is nothing to look at."""
        return self.rule.choose(problem, tol, max_depth, levels)

    def run(
        self, problem: Recursion, tol: float, max_depth: int, levels: int, run: Run[Result], training: bool
    ) -> tuple[Depth, Result, Tensor]:
        """A pass, checked where it must be, and its state; see :func:`pprgnn.core.depth.run_at_depth`."""
        scale = problem.space.norm(problem.b)
        # B = 0 teaches nothing about other inputs, and numbers that may underflow need more than a comparison.
        if not scale * TINY > torch.finfo(problem.b.dtype).smallest_normal or max_depth <= levels + 1:
            found = self.rule.choose(problem, tol, max_depth, levels)
            result, ends = run(found.k)
            return found, result, ends()[0]
        if training and self._passes_over(levels):
            self._unseen += 1
            k = min(max(self._looked), max_depth)
            result, ends = run(k)
            return Depth(k, Status.REUSED), result, ends()[0]
        trial = _Trial(problem, tol, max_depth, levels, run, scale)
        found = self._training_step(trial) if training else self._answer(trial)
        if training:
            self._looks, self._unseen = self._looks + 1, 0
            self._looked.append(trial.depth)
        return found, trial.result, trial.ends[0]

    def _passes_over(self, levels: int) -> bool:
        """Whether a training step is not looked at."""
        settled = self._looks >= WARM_UP and self._last is not None and not (self._doubtful or self._rounding)
        return settled and self._unseen + 1 < self.every and max(self._looked) > levels

    def _training_step(self, trial: _Trial[Any]) -> Depth:
        if self._failure is not None and self._pause > 0:  # warns again, but does not search in every step
            self._pause -= 1
            trial.go(self._failure.k)
            return Depth(trial.depth, self._failure.status, estimated_error=self._failure.measured_error)
        problem, max_depth = trial.problem, trial.max_depth
        step = look_at(problem, trial.scale, rows=self._peak > SENSITIVE)
        if self._last is None:
            self._before = step
            guess = trial.guess(START)
            trial.go(guess)
            checked = self._checked(trial, step, None)
            if self._last is not None:
                self._of_guess = min(self._last.enough(trial.aim) / guess, 1.0)
            return checked
        differences = step.differences(self._last.step, self._before, max(self._depth, 1), problem.space)
        self._before = step
        trial.go(self._expected_depth(trial, step, differences))
        differences = differences._replace(output=abs(trial.log_output - self._last.log_output))
        if self._must_check(differences, trial.depth):
            return self._checked(trial, step, differences)
        self._work += trial.depth + 2 * trial.levels  # a backward term costs about two forward steps
        self._depth = trial.depth
        error = self._last.log_error_at(trial.depth, step)
        capped = trial.depth == max_depth and error > trial.aim
        status = Status.CAPPED if capped else Status.ROUNDING if self._rounding else Status.REUSED
        return Depth(trial.depth, status, estimated_error=math.exp(min(error, 700.0)))

    def _expected_depth(self, trial: _Trial[Any], step: TrainingStep, differences: Differences) -> int:
        """From the step checked last or, in a row of steps with other inputs, from what those needed."""
        assert self._last is not None
        if differences.unlike and self._unlike_steps > 0 and self._needed:
            most, least = max(self._needed), min(self._needed)
            return most + max(1, math.ceil(0.5 * (most - least)))
        # What the movement does beyond its size: 0.6 of it until there is experience, then what was seen.
        seen = max(self._surprises, default=0.0)
        slope = 0.6 if len(self._surprises) < 3 else min(max(1.5 * seen, 0.2), 0.6)
        margin = 0.4 + slope * min(differences.movement, 4.0)
        margin += min(max(differences.channels, 0.0), 3.0)  # what a channel adds to the error grows as it does
        return self._last.depth_for(step, trial.aim - margin, trial.max_depth)

    def _must_check(self, differences: Differences, depth: int) -> bool:
        if self._doubtful or (self._delicate and differences.unlike):
            return True
        if not differences.unlike:
            self._unlike_steps = self._good_checks = 0
            near, share, passes = (0.5, 5 * self.share, 4) if self._delicate else (1.0, self.share, 1)
            unusual = any(now > near * small for now, small in zip(differences, SMALL, strict=True))
            assert self._last is not None
            far = depth > 1.25 * self._last.depth + 2  # such as with a smaller tolerance
            return unusual or far or self._work * share >= passes * depth
        self._unlike_steps += 1
        self._unchecked += 1
        if self._unlike_steps <= 6 or len(self._unlike) < 8:
            return True
        most = (max(each) for each in zip(*self._unlike, strict=True))
        unseen = any(
            now > 1.3 * then + 0.5 * small for now, then, small in zip(differences, most, SMALL, strict=True)
        )
        return unseen or self._unchecked >= min(8, 3 + self._good_checks // 4)

    def _checked(self, trial: _Trial[Any], step: TrainingStep, differences: Differences | None) -> Depth:
        """Compare the pass with a shallower one, and go deeper until two agree; learn from it."""
        self.checks += 1
        disturbed = float(self._rounding or self.checks % 2 == 1)
        if differences is not None and differences.grown:  # two depths may both miss what grows slowly
            deeper = math.ceil(self._of_guess * trial.guess(0))
            if deeper > trial.depth:
                trial.products += trial.depth
                trial.go(deeper)
        last = self._last
        if differences is None or (last is not None and last.log_error < trial.aim - SLACK):
            # A depth that comes from a guess, or that leaves so much to spare, is much deeper than it must be.
            first = trial.compare(disturbed, self.checks, part=2.3)
            if trial.allowed < first < math.inf:
                enough = CheckedStep(step, trial.shallower, first, 0.0).enough(trial.aim)
                first = trial.compare(disturbed, self.checks, at=enough)
        elif differences.unlike or differences.grown or last is None:
            first = trial.compare(disturbed, self.checks)
        else:  # where the aim is just expected: what is known then is known of the depth that is needed
            expected = last.depth_for(step, trial.aim, trial.depth)
            first = trial.compare(disturbed, self.checks, at=max(expected, math.ceil(0.75 * trial.depth)))
        if differences is not None and not differences.unlike and self._last is not None:
            surprise = first - self._last.log_error_at(trial.shallower, step)
            surprise /= max(differences.movement, 1.0)
            self._surprises.append(min(max(surprise, -12.0), 12.0) if math.isfinite(surprise) else 12.0)
            trial.eps = None if differences.grown else step.eps
        passed = trial.agrees
        found = trial.deepen(lambda: CheckedStep(step, trial.shallower, trial.log_error, 0.0).enough(trial.aim))
        if disturbed or found.status is Status.ROUNDING:
            self._rounding = found.status is Status.ROUNDING
        if not (found.status.converged or self._rounding):
            self._last, self._failure, self._failed = None, found, self._failed + 1
            self._pause = min(2**self._failed, 64)
            return found
        self._failed, self._failure = 0, None
        trial.least_peak = 0.9 * self._peak
        self._peak, self._delicate = trial.peak, trial.delicate
        if self._peak > SENSITIVE and step.rows is None:
            step = replace(step, rows=rows_of(trial.problem.b, trial.scale))
        if self._delicate and found.status.converged:
            found = trial.look_closer(found)
            self._rounding = found.status is Status.ROUNDING
        self._doubtful = self._delicate and (trial.unrelated or not found.status.converged)
        self._last = CheckedStep(step, trial.shallower, trial.log_error, trial.log_output)
        if differences is not None and differences.unlike:
            self._unlike.append(differences)
            self._needed.append(self._last.enough(trial.aim))
            self._good_checks = self._good_checks + 1 if passed else 0
        self._depth, self._work, self._unchecked = trial.depth, trial.depth + 2.0 * trial.levels, 0
        return found

    def _answer(self, trial: _Trial[Any]) -> Depth:
        """Checked on this very input, and proved where that costs no more; nothing is learned from it."""
        bounds = trial.problem.bounds()
        proved = bounds.depth(trial.tol, trial.max_depth, trial.levels)
        if proved is not None and proved <= 1.5 * max(self._depth, START):
            trial.go(proved)
            return Depth(trial.depth, Status.CERTIFIED, bounds.error(trial.depth))
        # Not from training alone: two shallow passes may agree because both miss what grows slowly.
        trial.go(max(self._depth, trial.guess(START)))
        trial.compare(0.0)
        found = trial.deepen(lambda: trial.depth, rounding=False)
        if found.status.converged and trial.beyond:
            found = replace(found, status=Status.CAPPED)
        return found

    # ---------------------------------------------------------------------------------------------------- state
    def state(self) -> dict[str, Any]:
        """Everything the next choices depend on: JSON values, except that "tensors" holds tensors by name.

        ``rule``, ``share`` and ``every`` are not part of it: they are how it was built, not what it remembers.
        """
        skip = {"rule", "share", "every", "_last", "_before", "_failure"}
        known = {name.lstrip("_"): value for name, value in vars(self).items() if name not in skip}
        state: dict[str, Any] = {
            name: list(value) if isinstance(value, deque) else value for name, value in known.items()
        }
        state["unlike"] = [[_to_json(number) for number in each] for each in self._unlike]
        failure = self._failure
        state["failure"] = None if failure is None else [failure.k, failure.status.name, failure.measured_error]
        state["last"], state["tensors"] = None, {}
        if self._last is not None and self._before is not None:
            numbers = [self._last.depth, self._last.log_error, self._last.log_output]
            state["last"] = [_to_json(number) for number in numbers]
            for name, step in (("checked", self._last.step), ("before", self._before)):
                state[name] = [step.eps, step.log_scale, _to_json(step.size), *step.graph]
                tensors = {"weight": step.weight, "sketch": step.sketch, "rows": step.rows}
                state["tensors"] |= {f"{name}_{kind}": t.clone() for kind, t in tensors.items() if t is not None}
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` gave: from here on the choices are those of the memory it came from."""
        try:
            known = DepthMemory(self.rule, self.share, every=self.every)
            for name, start in vars(known).items():
                if name not in ("share", "every") and isinstance(start, bool | int | float):
                    setattr(known, name, type(start)(state[name.lstrip("_")]))
            known._looked.extend(map(int, state["looked"]))
            known._surprises.extend(float(each) for each in state["surprises"])
            known._needed.extend(int(each) for each in state["needed"])
            known._unlike.extend(Differences(*map(float, each)) for each in state["unlike"])
            if state["failure"] is not None:
                depth, status, error = state["failure"]
                known._failure = Depth(int(depth), Status[status], measured_error=float(error))
            if state["last"] is not None:
                depth, log_error, log_output = state["last"]
                checked, known._before = (_step_from(state, name) for name in ("checked", "before"))
                known._last = CheckedStep(checked, int(depth), float(log_error), float(log_output))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"This is not the state of a DepthMemory ({type(error).__name__}: {error}); take it from "
                f"DepthMemory.state(), or go on without it: depths are then found afresh."
            ) from error
        vars(self).update(vars(known))


def _step_from(state: Mapping[str, Any], name: str) -> TrainingStep:
    eps, log_scale, size, nodes, edges, fingerprint = state[name]
    weight, sketch = (state["tensors"][f"{name}_{kind}"].clone() for kind in ("weight", "sketch"))
    rows = state["tensors"].get(f"{name}_rows")
    graph = int(nodes), int(edges), int(fingerprint)
    kept = None if rows is None else rows.clone()
    return TrainingStep(graph, float(eps), float(log_scale), weight, sketch, float(size), kept)


def _to_json(value: Any) -> Any:
    """Numbers as they are; JSON has no infinite ones, so these become words that ``float`` understands."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class _Trial(Generic[Result]):
    """A pass, and others of the same problem that it is compared with."""

    def __init__(
        self, problem: Recursion, tol: float, max_depth: int, levels: int, run: Run[Result], scale: float
    ) -> None:
        self.problem, self.tol, self.max_depth, self.levels, self.scale = problem, tol, max_depth, levels, scale
        self.run, self.aim = run, math.log(tol)
        self.least_peak = 0.0  # by checks before this one: a single one may see little
        self.eps: float | None = None  # given: what lies between the two depths counts
        self.depth = self.shallower = self.products = 0
        self.log_error = self.log_output = self.allowed = math.inf
        self.sketch: Sketch | None = None
        self.result: Result
        self.ends: list[Tensor] = []

    def go(self, depth: int) -> None:
        """Run a pass; at least one level deeper than the gradient needs, so that there is a shallower one."""
        self.depth = min(max(depth, self.levels + 1, 2), self.max_depth)
        self.result, ends = self.run(self.depth)
        self.ends = ends()
        growth = self.problem.space.norm(self.ends[0]) / self.scale
        self.log_output = math.log(max(growth, 1e-30)) if growth < math.inf else math.inf
        # Differences of the size of a few roundings of the state are not what truncation leaves out.
        noise = ROUNDINGS * unit_roundoff(self.ends[0]) * growth
        self.allowed = math.log(max(self.tol, noise if math.isfinite(noise) else 0.0))

    def guess(self, otherwise: int) -> int:
        """A depth to begin with, found without a pass."""
        self.sketch = self.problem.guess(self.tol, self.max_depth)
        return otherwise if self.sketch is None else self.sketch.depth

    def compare(self, times: float, seed: int = 0, at: int | None = None, part: float = 8) -> float:
        """The difference (log) to a shallower pass, disturbed by so many ``times`` what rounding does."""
        apart = int(self.depth / part) if at is None else self.depth - at
        apart = max((apart - 1) | 1, 1)  # odd: in a cycle of two states every second depth agrees
        self.shallower = max(self.depth - apart, self.levels)
        self.products += self.shallower
        with another_pass(self.problem, self.shallower, self.levels, seed, times) as (ends, room):
            self._difference(ends, room)
        return self.log_error

    @property
    def agrees(self) -> bool:
        """Whether the pass has the accuracy that is allowed, as far as the comparison tells."""
        error = self.log_error
        if self.eps is not None and math.isfinite(error):  # the error is that of the shallower pass
            gain, left_out = log_gain(error, self.shallower, self.eps), range(self.shallower, self.depth)
            error += 0.8 * sum(min(gain - math.log1p(n * self.eps), 0.0) for n in left_out)
        return error <= self.allowed

    @property
    def peak(self) -> float:
        """By how much (log) a part of B may grow: ∏ κ βₙ over all levels that enlarge, κ by how errors changed."""
        eps, gain = float(self.problem.eps.min()), 0.0
        if math.isfinite(self.log_error):
            gain = max(log_gain(self.log_error, self.shallower, eps), 0.0)
        return max((math.expm1(gain) - gain) / eps, self.least_peak)

    @property
    def delicate(self) -> bool:
        """Whether rounding may grow to the size of the state."""
        return self.peak + math.log(MARGIN * unit_roundoff(self.ends[0])) > 0

    @property
    def unrelated(self) -> bool:
        """Whether a single rounding may become as large as the state: no step then tells of the next one."""
        return self.peak + math.log(unit_roundoff(self.ends[0])) > 0

    @property
    def beyond(self) -> bool:
        """Whether what lies beyond ``max_depth`` may decide between branches, too."""
        if self.sketch is None:
            self.guess(0)
        return self.sketch is not None and self.sketch.beyond(self.max_depth, unit_roundoff(self.ends[0]))

    def look_closer(self, found: Depth) -> Depth:
        """What rounding does to a pass that agrees with another one, since both may be on a wrong branch."""
        pairs = PAIRS if self.unrelated else PAIRS[:2]
        error, harmless, products = estimated(self.problem, self.ends[0], self.depth, self.tol, pairs)
        found = replace(found, products=found.products + products, rounding_error=error)
        if not harmless:
            return replace(found, status=Status.ROUNDING)
        return replace(found, status=Status.CAPPED) if self.beyond else found

    def deepen(self, next_depth: Callable[[], int], rounding: bool = True) -> Depth:
        """Deeper passes until one agrees with the one before it; then once more with a disturbed one."""
        again = not self.agrees
        while not self.agrees and math.isfinite(self.log_error) and self.depth < self.max_depth:
            before, self.shallower = self.ends, self.depth
            self.products += self.depth
            apart = max(next_depth() - self.depth, math.ceil(0.25 * self.depth), 1) | 1
            most = self.max_depth - self.depth
            self.go(self.depth + min(apart, most if most % 2 else max(most - 1, 1)))
            self._difference(before)
        status, error = Status.COMPARED, self.log_error
        settled, shallower = self.agrees, self.shallower
        if again and math.isfinite(error) and (rounding or not settled):
            # With a pass whose truncation is known to be small, if there is one.
            error = self.compare(1.0, seed=1, at=shallower if settled else None)
            if not self.agrees and settled:  # the depth is not to blame
                status, self.shallower, self.log_error = Status.ROUNDING, shallower, min(self.aim, self.allowed)
            elif not self.agrees:
                status = Status.CAPPED
        if not error < math.inf:
            status = Status.NOT_FINITE
        found = Depth(self.depth, status, None, math.exp(min(error, 700.0)), products=self.products)
        return replace(found, includes_rounding=rounding, sketch=self.sketch)

    def _difference(self, other: list[Tensor], room: Tensor | None = None) -> None:
        """The larger of those of G⁽⁰⁾ and G⁽ˡᵉᵛᵉˡˢ⁾."""
        norms = [
            self.problem.space.norm(torch.sub(ours, theirs, out=room))
            for ours, theirs in zip(self.ends, other, strict=True)
        ]
        error = math.nan if any(map(math.isnan, norms)) else max(norms) / self.scale
        self.log_error = math.log(max(error, SMALLEST)) if math.isfinite(error) else math.inf
