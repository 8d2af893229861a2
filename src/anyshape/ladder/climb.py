"""The ladder: capture on one rung after another, until a lowered and verified model is right.

Where a symbolic trace is wrong beyond one of its guards, it is traced again there; traces at concrete sizes then have
to explain the sizes at which it was wrong. Where that does not help, sizes that the user did not declare are left out:
the contract says so, and the file itself refuses them.
"""

from __future__ import annotations

from dataclasses import replace

from anyshape.capture import NoTape, Traces
from anyshape.contract.agree import Agreed
from anyshape.errors import AnyshapeError, Fault, HistoryFault, InternalError, VerifyFault
from anyshape.inputs.case import Case
from anyshape.ladder.attempt import Attempt, Made, Settings
from anyshape.ladder.rungs import rungs_for, watched
from anyshape.lower.operators import TRANSLATED
from anyshape.progress import Progress
from anyshape.verify.reference import Reference

__all__ = ["climb"]


def climb(case: Case, agreed: Agreed, settings: Settings, progress: Progress) -> Made:
    """The first rung's model that is right; if none is, the first that is right at fewer sizes; else its fault."""
    reference = Reference(case, agreed)
    traces = Traces(case, agreed, TRANSLATED.union(settings.translations or ()))
    with progress.station("capture"):
        progress.doing("capture", "running the model, its sizes watched")
        ground = watched(traces)
    attempts: list[Attempt] = []
    stuck: Fault | InternalError | None = None
    for rung in rungs_for(ground):
        stuck = None
        try:
            for capture in rung.captures(ground, attempts):
                under = reference.under(capture.agreed)
                attempts.append(Attempt(case, under, capture.program, settings, progress, ground.turns.found))
                verdict = attempts[-1].judge()
                if verdict.right:
                    return attempts[-1].made(verdict)
        except HistoryFault:
            raise
        except Fault as fault:
            stuck = fault
            ground = replace(ground, guards=fault.guards if isinstance(fault, NoTape) else ())
        except AnyshapeError:
            raise
        except Exception as error:  # a mistake of ours on one rung must not keep another from being right
            stuck = InternalError(error, f"capturing the model ({rung.name})")
    if not attempts:
        assert stuck is not None
        raise stuck  # of the rung that can do most
    try:
        return attempts[0].narrowed()
    except VerifyFault as fault:
        if stuck is None or attempts[0].program.rung == "symbolic":
            raise
        # Traces at more sizes were asked for and failed: that says why the first ones did not suffice.
        raise stuck from fault
