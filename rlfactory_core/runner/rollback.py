"""``train.guard=rollback``: a run that goes wrong goes on from its last good checkpoint, once."""

from __future__ import annotations

from rlfactory_core.algo.guard import began
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner.folders import save_config
from rlfactory_core.runner.resolving import Resolved, check, look_up
from rlfactory_core.utils.interrupt import StopRequest

ROLLED_BACK = "rolled_back"  # in summary.json
LOWER = 0.5  # times the learning rates


def rolled_back(run: Resolved, folder: RunFolder, stop: StopRequest, progress: Progress) -> Resolved | None:
    """The run as it goes on after the guard has stopped it; None if it does not.

    What the guard finds began some steps before; a good checkpoint is older than those.
    """
    config, go_back = run.config, run.traits.roll_back
    if config.train.guard != "rollback" or go_back is None or stop.interrupted or not stop.warning:
        return None
    last = folder.read_metrics()[-1]
    found = int(last["step"] or 0)
    before = found - began(last)
    step = go_back(folder, before)
    if step is None:
        progress.say(f"train.guard=rollback: no checkpoint is older than step {before}; see checkpoint.every.")
        return None
    lr, muon_lr = LOWER * config.train.lr, LOWER * config.train.muon_lr
    train = config.train.model_copy(update={"lr": lr, "muon_lr": muon_lr, "guard": "stop"})
    config = config.model_copy(update={"train": train})
    save_config(config, run.registry, folder)
    why = stop.warning
    folder.write_summary({**folder.read_summary(), ROLLED_BACK: {"from": found, "to": step, "lr": lr, "why": why}})
    progress.say(f"{why} The run goes back to step {step}, and on with train.lr={lr:g}.")
    return check(look_up(config, run.registry))
