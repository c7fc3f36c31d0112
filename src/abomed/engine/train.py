"""Meta-training: Algorithm 1, l. 5-18, with validation, checkpoints and resumption around it.

Decisions:
- An iteration is a function of the weights, the optimiser's state, the method's memory and the iteration's number:
  tasks and augmentation are drawn by number. So a checkpoint holds no generator state, and a run killed anywhere
  and resumed ends, on a processor, with the bits of one never stopped.
- The order at a checkpoint is: metrics to the disk, then weights, then the pointer. A killed run's metrics are cut
  back to the checkpoint it resumes from.
- Numbers that are not finite stop the run before they reach a checkpoint (`soundness`).
- Of several ranks (`parallel`) all compute and one, which holds the lock, writes.
- A run folder is begun only when everything the training needs has been built. A wish to stop (`stop`) is granted
  between iterations, after a checkpoint: nothing that was computed is lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from abomed.config.run import RunConfig
from abomed.engine.capacity import fewer_tasks, memory_advice, method_chunk
from abomed.engine.checkpoint import prefix_names, select_prefix
from abomed.engine.compiled import Encode, Encoders, training_encode
from abomed.engine.environment import describe_environment
from abomed.engine.evaluate import answer_tasks, autocast
from abomed.engine.files import clear_unfinished
from abomed.engine.journal import Journal, cut_journal
from abomed.engine.launch import device_of_rank, join_ranks
from abomed.engine.lock import RunLock
from abomed.engine.material import Material, choose_device, config_of, task_lists
from abomed.engine.optimiser import create_optimiser, pack_optimiser, restore_optimiser, set_learning_rate
from abomed.engine.parallel import Exchange, Ranks
from abomed.engine.portions import learn_in_portions, portion_size
from abomed.engine.progress import Event, Progress, Stop, TrainResult, Watch
from abomed.engine.record import RunFolder, create_run, resume_run, write_card
from abomed.engine.rotation import CheckpointFolder
from abomed.engine.soundness import Soundness, describe_divergence, lost_numbers
from abomed.engine.weights import named_weights, restore_weights, trained_parameters
from abomed.errors import NumericalError
from abomed.methods.base import MetaStep, Method, TaskImages
from abomed.methods.registry import create_method
from abomed.models import create_backbone

BEST, CHOSEN = "best", "weights"


def train(
    config: RunConfig,
    material: Material,
    out: Path,
    *,
    resume: bool = False,
    on_event: Watch | None = None,
    stop: Stop | None = None,
    about: Mapping[str, Any] | None = None,
) -> TrainResult:
    """Meta-train as `config` says and leave a run folder in `out`.

    When `stop` says so, the run is saved after the iteration in hand and KeyboardInterrupt raised.
    """
    device = device_of_rank(choose_device(config.train.device))
    described, environment = config_of(config, material), describe_environment(device)
    card = {**(about or {}), "selection": config.train.selection}
    with join_ranks(device, out) as ranks, RunLock(out) if ranks.leads else nullcontext() as lock:
        environment["ranks"] = ranks.count
        changes = resume_run(out, described, environment).changes if resume and ranks.leads else ()
        loop = Loop(config, material, RunFolder(out), device, on_event or (lambda _: None), ranks)
        if resume:
            loop.recover(changes)
        elif ranks.leads:
            create_run(out, described, environment, card)
        if ranks.leads:
            clear_unfinished(out)
        with memory_advice(fewer_tasks(loop.chunk, config.train.task_batch)):
            result = loop.run_to_end(lock, stop or (lambda: False))
        if ranks.leads:
            write_card(result.run, {**card, **result.to_card()})
    return result


class Loop:
    """One training in one process, or one rank's part of it."""

    def __init__(
        self,
        config: RunConfig,
        material: Material,
        run: RunFolder,
        device: torch.device,
        watch: Watch,
        ranks: Ranks | None = None,
    ) -> None:
        self.config, self.run, self.device, self.watch = config, run, device, watch
        self.settings, self.ranks = config.train, ranks or Ranks()
        self.stop: Stop = lambda: False
        method, spec, model = create_method(config), config.episodes, config.model
        built = create_backbone(model.backbone, image_size=model.image_size, seed=self.settings.seed)
        self.backbone = built.to(device)
        self.method: Method = method.for_backbone(self.backbone, spec.ways, self.settings.seed)
        self.trained = trained_parameters(self.backbone, self.method)
        fast: Encode = self.backbone.body.encode
        if method.fast_forward:
            fast = training_encode(self.backbone, self.settings, model.normalisation, device)
        self.encoders = Encoders(self.backbone, fast)
        self.optimiser = create_optimiser(config.outer, self.trained)
        running, tasks = model.normalisation == "running", self.settings.task_batch
        self.exchange = Exchange(self.ranks, self.backbone, self.trained, tasks, running=running)
        self.soundness = Soundness(self._lost)
        lists = task_lists(config, material, device, self.backbone.image_size)
        self.source, self.validation = lists.training, lists.validation
        self.chunk = method_chunk(
            self.settings.chunk, self.method, self.backbone, spec, device, self.settings.iterations
        )
        self.portion = portion_size(spec, self.backbone.image_size, device)
        self.progress = Progress()
        self.overwritten: int | None = None  # whose weights replaced the best known (`_recall_best`)
        self.told_divergence = False

    @cached_property
    def folder(self) -> CheckpointFolder:
        # Made at its first use: until the run is begun, its folder stays empty.
        return CheckpointFolder(self.run.checkpoints)

    def run_to_end(self, lock: RunLock | None, stop: Stop) -> TrainResult:
        """All iterations that are left; without a lock they leave no trace but their part of the result."""
        self.stop = lambda: stop() or self.ranks.asked()
        with Journal(self.run.metrics) if lock is not None else nullcontext() as journal:
            for event in self._events(journal, lock):
                self.watch(event)
        return self._hand_on()

    def recover(self, changes: Sequence[str] = ()) -> None:
        """Go on from the newest checkpoint that is whole; from the start when none was written yet.

        `changes` of the environment since the run was started are told: they may change bits.
        """
        for change in changes:
            self.watch(Event(self.progress.iteration, {}, 0.0, f"note: {change}"))
        if self.folder.is_empty:
            self._cut_journal(-1)
            return
        found = self.folder.newest()
        tensors, state = found.checkpoint.tensors, found.checkpoint.state
        restore_weights(self.backbone, self.method, tensors)
        restore_optimiser(self.optimiser, tensors, state["optimiser"])
        memory = {name: t.to(self.device) for name, t in select_prefix(tensors, "memory").items()}
        self.progress = Progress(found.iteration, memory, state["best_accuracy"], state["best_iteration"])
        self._recall_best()
        self._cut_journal(found.iteration)
        for path, reason in found.skipped:
            self.watch(Event(found.iteration, {}, 0.0, f"note: {path.name} was passed over: {reason}"))
        self.watch(Event(found.iteration, {}, 0.0, "resumed"))

    def _cut_journal(self, iteration: int) -> None:
        if self.ranks.leads:
            cut_journal(self.run.metrics, iteration)

    def _recall_best(self) -> None:
        if self.settings.selection == "best-val" and self.folder.path_of(BEST).exists():
            kept = int(self.folder.read_named(BEST).state["iteration"])
            self.overwritten = self.progress.recall_best(kept)

    def _events(self, journal: Journal | None, lock: RunLock | None) -> Iterator[Event]:
        settings, start = self.settings, perf_counter()
        while self.progress.iteration < settings.iterations:
            step = self.iterate()
            done = self.progress.iteration
            last = done == settings.iterations
            told = done % settings.log_every == 0 or last
            validated = done % settings.validate_every == 0 or last
            if told or validated:
                self.soundness.settle()
            if told:
                figures = {name: float(values.mean()) for name, values in step.figures.items()}
                yield self._tell(journal, Event(done, figures, perf_counter() - start))
                yield from self._divergence(figures)
            if validated:
                yield self._tell(journal, Event(done, self._validate(), perf_counter() - start, "validation"))
            stopped = not last and self.exchange.is_stopped(self.stop, told=told)
            due = done % settings.checkpoint_every == 0 or settings.selection == f"iteration={done}"
            if (due or last or stopped) and journal is not None and lock is not None:
                self.soundness.settle()
                journal.sync()
                lock.confirm()
                self._save()
            if stopped:
                raise KeyboardInterrupt

    def _divergence(self, figures: Mapping[str, float]) -> Iterator[Event]:
        """A note, once, that the heads end farther from a solution than they started."""
        told = None if self.told_divergence else describe_divergence(figures, self.config.inner.steps)
        if told is not None:
            self.told_divergence = True
            yield Event(self.progress.iteration, {}, 0.0, f"note: {told}")

    def iterate(self) -> MetaStep:
        """One meta-update (Alg. 1, l. 6-17)."""
        progress, settings = self.progress, self.settings
        first = progress.iteration * settings.task_batch
        self.optimiser.zero_grad(set_to_none=True)
        self.exchange.begin()
        step = learn_in_portions(
            lambda part: self.source.draw_and_show(first, part),  # l. 6
            self._learn,  # l. 7-16
            self.exchange.own,
            self.portion,
            self.trained,
        )
        step = self.exchange.combine(step, asked=self.stop())
        self.soundness.note(progress.iteration + 1, step, self.trained)
        if self.config.outer.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.trained, self.config.outer.clip_norm)
        set_learning_rate(self.optimiser, self.config.outer, progress.iteration, settings.iterations)
        self.optimiser.step()  # l. 17
        progress.memory, progress.iteration = step.memory, progress.iteration + 1
        return step

    def _learn(self, tasks: TaskImages, place: slice) -> MetaStep:
        memory = self.method.memory_of(self.progress.memory, place)
        with autocast(self.device, self.settings.precision), self.encoders.training():
            return self.method.meta_gradient(self.backbone, tasks, memory, chunk=self.chunk)

    def _lost(self, iteration: int, found: str) -> NumericalError:
        kept = None if self.folder.is_empty else self.run.checkpoints
        return lost_numbers(iteration, found, run=self.run.path, kept=kept, method=self.settings.method)

    def _validate(self) -> dict[str, float]:
        count, progress = self.settings.validation_tasks, self.progress
        own = self.ranks.share(count)
        answers = answer_tasks(
            self.method,
            self.backbone,
            self.validation,
            own.stop - own.start,
            first=own.start,
            chunk=self.chunk,
            precision=self.settings.precision,
        )
        values = self.ranks.gather(answers.accuracy, count, self.device)
        accuracy = float(values.mean())
        if accuracy > progress.best_accuracy or progress.iteration == self.overwritten:
            progress.best_accuracy, progress.best_iteration = accuracy, progress.iteration
            self.overwritten = None
            if self.settings.selection == "best-val" and self.ranks.leads:
                self.folder.save_named(
                    BEST, progress.iteration, named_weights(self.backbone, self.method), {}
                )
        spread = float(values.std()) / count**0.5
        return {"accuracy": accuracy, "half_width": 1.96 * spread, "best": progress.best_accuracy}

    def _tell(self, journal: Journal | None, event: Event) -> Event:
        if journal is not None:
            journal.append(event.iteration, {"kind": event.kind, **event.figures}, {"seconds": event.seconds})
        return event

    def _save(self) -> None:
        packed, progress = pack_optimiser(self.optimiser), self.progress
        broken = [
            name
            for name, t in named_weights(self.backbone, self.method).items()
            if not bool(t.isfinite().all())
        ]
        if broken:
            raise self._lost(
                progress.iteration, f"weights after the update: {broken[0].removeprefix('model/')}"
            )
        if self.settings.selection == f"iteration={progress.iteration}":
            # Before the numbered one: a run resumed from that does not come by here again.
            self.folder.save_named(BEST, progress.iteration, named_weights(self.backbone, self.method), {})
        tensors = {
            **named_weights(self.backbone, self.method),
            **packed.tensors,
            **prefix_names(progress.memory, "memory"),
        }
        state = {
            "optimiser": packed.state,
            "best_accuracy": progress.best_accuracy,
            "best_iteration": progress.best_iteration,
        }
        self.folder.save(progress.iteration, tensors, state)

    def _hand_on(self) -> TrainResult:
        """Write the selected weights under the name that evaluation and classification read."""
        best, folder = self.progress, CheckpointFolder(self.run.path)
        tensors, iteration = named_weights(self.backbone, self.method), best.iteration
        if self.settings.selection != "last" and self.ranks.leads:
            chosen = self.folder.read_named(BEST)
            tensors, iteration = chosen.tensors, int(chosen.state["iteration"])
        weights = folder.path_of(CHOSEN)
        if self.ranks.leads:
            folder.save_named(CHOSEN, iteration, tensors, {})
        return TrainResult(self.run, weights, iteration, best.best_accuracy, best.best_iteration)
