"""The ladder: capture on one rung after another, until a lowered and verified model is right.

Traces at concrete sizes that are wrong somewhere have to explain the sizes at which they were; a symbolic trace that is
wrong beyond one of its guards is traced again there. Where that does not help, sizes that the user did not declare are
left out: the contract says so, and the file itself refuses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anyshape.capture import NoTape, Traces, Unseen
from anyshape.contract.agree import Agreed
from anyshape.errors import AnyshapeError, Fault, HistoryFault, InternalError, VerifyFault
from anyshape.inputs.case import Case
from anyshape.ladder.attempt import Attempt, Made, Settings
from anyshape.ladder.rungs import TRACES, rungs_for, watched
from anyshape.lower.operators import translated
from anyshape.progress import Progress
from anyshape.verify.numbers import numbers_of
from anyshape.verify.reference import Reference

__all__ = ["climb"]


def climb(case: Case, agreed: Agreed, settings: Settings, progress: Progress) -> Made:
    """The first rung's model that is right; if none is, the first that is right at fewer sizes; else its fault."""
    reference = Reference(case, agreed, numbers=numbers_of(case, agreed))
    traces = Traces(case, agreed, translated().union(settings.translations or ()))
    with progress.station("capture"):
        progress.doing("capture", "running the model, its sizes watched")
        ground = watched(traces)
    attempts: list[Attempt] = []
    stuck: dict[str, Fault | InternalError] = {}
    for rung in rungs_for(ground, settings.prove):
        try:
            for capture in rung.captures(ground, attempts):
                under = reference.under(capture.agreed)
                attempts.append(Attempt(case, under, capture.program, settings, progress, ground.turns.found))
                verdict = attempts[-1].judge()
                if verdict.right:
                    return attempts[-1].made(verdict)
        except (HistoryFault, Unseen):
            raise
        except Fault as fault:
            stuck[rung.name] = fault
            ground = replace(ground, guards=fault.guards if isinstance(fault, NoTape) else ())
        except AnyshapeError:
            raise
        except Exception as error:  # a mistake of ours on one rung must not keep another from being right
            stuck[rung.name] = InternalError(error, f"capturing the model ({rung.name})")
    return _narrowed(attempts, stuck)


def _narrowed(attempts: Sequence[Attempt], stuck: Mapping[str, Fault | InternalError]) -> Made:
    """The first attempt that is right at fewer sizes. One with guards knows what it relies on, and is asked first."""
    why = stuck.get(TRACES.name)  # of the rung that can do most
    if not attempts:
        raise why or next(iter(stuck.values()))
    guarded = [attempt for attempt in attempts if attempt.program.guards]
    faults = []
    for attempt in dict.fromkeys((*guarded[:1], attempts[0])):
        try:
            return attempt.narrowed()
        except VerifyFault as fault:
            faults.append(fault)
    if why is None:
        raise faults[0]
    # Traces at several sizes could not be explained as one model: that is why, and a guard that is broken is not.
    raise why from faults[0]
