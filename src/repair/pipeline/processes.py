"""One pipeline in several processes: `torchrun --nproc-per-node N -m repair run CONFIG`.

The first process runs the pipeline. The others wait for trainings and take their part in each; everything else, reading
and writing the run folder included, is the first one's alone. They see the prepared inputs through `run.cache`, which
must be on a disk that all share.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from repair.config import Config
from repair.core.ports import TrainableEncoder
from repair.pipeline import registries
from repair.training import parallel
from repair.training.loop import Recipe, Training, TrainingData


@dataclass(slots=True)
class _Crew:
    group: parallel.Group = parallel.ALONE
    in_training: bool = False  # the others are not listening for the next training then


_crew = _Crew()


@dataclass(frozen=True, slots=True)
class _Job:
    recipe: Recipe
    data: TrainingData
    folder: Path


@contextmanager
def crew(config: Config) -> Iterator[bool]:
    """Gives True in the process that is to run the pipeline; in the others False, once there is nothing left to do."""
    group = parallel.join()
    if group.world == 1:
        yield True
        return
    if not group.first:
        _follow(config, group)
        parallel.leave()
        yield False
        return
    _crew.group = group
    try:
        yield True
    finally:
        _crew.group = parallel.ALONE
        if not _crew.in_training:
            parallel.told(group, None)
            parallel.leave()


def group() -> parallel.Group:
    """The processes of this run: this one alone, unless torchrun started it."""
    return _crew.group


@contextmanager
def training_together(recipe: Recipe, data: TrainingData, folder: Path) -> Iterator[parallel.Group]:
    """Call the other processes to this training; the caller makes the same `Training` within and runs it."""
    if _crew.group.world > 1:
        parallel.told(_crew.group, _Job(recipe, data, folder))
    _crew.in_training = True
    yield _crew.group
    _crew.in_training = False  # an error leaves it: the others are then in the midst of a step


def _follow(config: Config, group: parallel.Group) -> None:
    while (job := parallel.told(group)) is not None:
        section = config.encoder
        encoder: TrainableEncoder = registries.ENCODERS.build(
            section.name, options=section.options, seed=config.run.seed
        )
        training = Training(encoder, job.data, job.recipe, folder=job.folder, group=group)
        for _ in training.run():
            pass
