"""Meta-training: Algorithm 1, l. 5-18, with validation, checkpoints and resumption around it.

Decisions:
- An iteration is a function of the weights, the optimiser's state, the method's memory and the iteration's number:
  tasks and augmentation are drawn by number. So a checkpoint holds no generator state, and a run killed anywhere
  and resumed ends, on a processor, with the bits of one never stopped.
- The order at a checkpoint is: metrics to the disk, then weights, then the pointer. A killed run's metrics are cut
  back to the checkpoint it resumes from.
- Numbers that are not finite stop the run before they reach a checkpoint.
- A run folder is begun only when everything the training needs has been built. A wish to stop (`stop`) is granted
  between iterations, after a checkpoint: nothing that was computed is lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from abomed.config.run import RunConfig
from abomed.engine.capacity import backbone_chunk, fewer_tasks, memory_advice
from abomed.engine.checkpoint import prefix_names, select_prefix
from abomed.engine.compiled import Encoders, training_encode
from abomed.engine.environment import describe_environment
from abomed.engine.evaluate import answer_tasks, autocast
from abomed.engine.files import clear_unfinished
from abomed.engine.journal import Journal, cut_journal
from abomed.engine.lock import RunLock
from abomed.engine.material import Material, choose_device, config_of, task_lists
from abomed.engine.optimiser import pack_optimiser, restore_optimiser
from abomed.engine.progress import Event, Progress, Stop, TrainResult, Watch
from abomed.engine.record import RunFolder, create_run, resume_run, write_card
from abomed.engine.rotation import CheckpointFolder
from abomed.errors import NumericalError
from abomed.methods.base import MetaStep, Method
from abomed.methods.registry import create_method
from abomed.models import Backbone, create_backbone

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
    device = choose_device(config.train.device)
    described, environment = config_of(config, material), describe_environment(device)
    card = {**(about or {}), "selection": config.train.selection}
    with RunLock(out) as lock:
        changes = resume_run(out, described, environment).changes if resume else ()
        loop = Loop(config, material, RunFolder(out), device, on_event or (lambda _: None))
        if resume:
            loop.recover(changes)
        else:
            create_run(out, described, environment, card)
        clear_unfinished(out)
        with memory_advice(fewer_tasks(loop.chunk, config.train.task_batch)):
            result = loop.run_to_end(lock, stop or (lambda: False))
        write_card(result.run, {**card, **result.to_card()})
    return result


class Loop:
    """One training in one process."""

    def __init__(
        self, config: RunConfig, material: Material, run: RunFolder, device: torch.device, watch: Watch
    ) -> None:
        self.config, self.run, self.device, self.watch = config, run, device, watch
        self.settings = config.train
        self.method: Method = create_method(config)
        self.backbone = self._build_backbone()
        fast = training_encode(self.backbone, self.settings, config.model.normalisation, device)
        self.encoders = Encoders(self.backbone, fast)
        self.optimiser = self._build_optimiser()
        lists = task_lists(config, material, device, self.backbone.image_size)
        self.source, self.validation = lists.training, lists.validation
        spec = config.episodes
        self.chunk = backbone_chunk(
            config.train.chunk, self.backbone, spec.ways * spec.images_per_class, device
        )
        self.progress = Progress()
        self.overwritten: int | None = (
            None  # iteration whose weights replaced the best known (`_recall_best`)
        )
        self.told_divergence = False

    @cached_property
    def folder(self) -> CheckpointFolder:
        # Made at its first use: until the run is begun, its folder stays empty.
        return CheckpointFolder(self.run.checkpoints)

    def run_to_end(self, lock: RunLock, stop: Stop) -> TrainResult:
        with Journal(self.run.metrics) as journal:
            for event in self._events(journal, lock, stop):
                self.watch(event)
        return self._hand_on()

    def recover(self, changes: Sequence[str] = ()) -> None:
        """Go on from the newest checkpoint that is whole; from the start when none was written yet.

        `changes` of the environment since the run was started are told: they may change bits.
        """
        for change in changes:
            self.watch(Event(self.progress.iteration, {}, 0.0, f"note: {change}"))
        if self.folder.is_empty:
            cut_journal(self.run.metrics, -1)
            return
        found = self.folder.newest()
        tensors, state = found.checkpoint.tensors, found.checkpoint.state
        self.backbone.load_state_dict(select_prefix(tensors, "model"))
        restore_optimiser(self.optimiser, tensors, state["optimiser"])
        memory = {name: t.to(self.device) for name, t in select_prefix(tensors, "memory").items()}
        self.progress = Progress(found.iteration, memory, state["best_accuracy"], state["best_iteration"])
        self._recall_best()
        cut_journal(self.run.metrics, found.iteration)
        for path, reason in found.skipped:
            self.watch(Event(found.iteration, {}, 0.0, f"note: {path.name} was passed over: {reason}"))
        self.watch(Event(found.iteration, {}, 0.0, "resumed"))

    def _recall_best(self) -> None:
        """Bring the best accuracy and the weights kept as the best into agreement.

        The best weights are written at once, the checkpoint that tells their accuracy later. After a kill between
        the two, the weights the checkpoint speaks of are gone. At the iteration that replaced them the run then
        decides anew, whatever it measures there: where results repeat to the bit nothing changes, and where they
        do not, the card still tells the iteration whose weights were kept.
        """
        progress = self.progress
        if self.settings.selection != "best-val" or not self.folder.path_of(BEST).exists():
            return
        kept = int(self.folder.read_named(BEST).state["iteration"])
        if kept > progress.iteration:
            self.overwritten = kept
        elif kept != progress.best_iteration:  # no run leaves this behind: a file was copied or put back
            progress.best_accuracy, progress.best_iteration = -1.0, 0

    def _events(self, journal: Journal, lock: RunLock, stop: Stop) -> Iterator[Event]:
        settings, start = self.settings, perf_counter()
        while self.progress.iteration < settings.iterations:
            step = self.iterate()
            done = self.progress.iteration
            last = done == settings.iterations
            if done % settings.log_every == 0 or last:
                figures = {name: float(values.mean()) for name, values in step.figures.items()}
                yield self._tell(journal, Event(done, figures, perf_counter() - start))
                yield from self._divergence(figures)
            if done % settings.validate_every == 0 or last:
                yield self._tell(journal, Event(done, self._validate(), perf_counter() - start, "validation"))
            stopped = stop() and not last
            due = done % settings.checkpoint_every == 0 or settings.selection == f"iteration={done}"
            if due or last or stopped:
                journal.sync()
                lock.confirm()
                self._save()
            if stopped:
                raise KeyboardInterrupt

    def _divergence(self, figures: Mapping[str, float]) -> Iterator[Event]:
        """A note, once, that the heads end farther from a solution than they started."""
        worst = max(figures.get("residual_y", 0.0), figures.get("residual_z", 0.0))
        if self.told_divergence or worst <= 1:
            return
        self.told_divergence = True
        advice = "; --inner.steps auto" if self.config.inner.steps == "paper" else ""
        told = f"the inner solve diverges: its gradient is {worst:.3g} times that of the zero head{advice}"
        yield Event(self.progress.iteration, {}, 0.0, f"note: {told}")

    def iterate(self) -> MetaStep:
        """One meta-update (Alg. 1, l. 6-17)."""
        progress, settings = self.progress, self.settings
        first = progress.iteration * settings.task_batch
        tasks = self.source.show(self.source.draw(first, settings.task_batch), first)  # l. 6
        self.optimiser.zero_grad(set_to_none=True)
        with autocast(self.device, settings.precision), self.encoders.training():
            step = self.method.meta_gradient(
                self.backbone, tasks, progress.memory, chunk=self.chunk
            )  # l. 7-16
        self._refuse_lost(step)
        self._clip()
        self._set_learning_rate(progress.iteration)
        self.optimiser.step()  # l. 17
        progress.memory, progress.iteration = step.memory, progress.iteration + 1
        return step

    def _refuse_lost(self, step: MetaStep) -> None:
        gradients = [p.grad for p in self.backbone.parameters() if p.grad is not None]
        sound = torch.stack([gradient.isfinite().all() for gradient in gradients]).all() & step.finite.all()
        if bool(sound):
            return
        raise self._lost(
            self.progress.iteration + 1,
            step.explain() or "the heads are finite; the backbone's own gradient is not",
        )

    def _lost(self, iteration: int, found: str) -> NumericalError:
        kept = (
            "no checkpoint had been written yet"
            if self.folder.is_empty
            else f"the last checkpoint is kept in {self.run.checkpoints}"
        )
        return NumericalError(
            f"numbers are no longer finite at iteration {iteration}",
            where=str(self.run.path),
            found=found,
            right=f"a smaller --outer.lr-outer, --inner.steps auto, or --precision float32; {kept}",
        )

    def _clip(self) -> None:
        if self.config.outer.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.backbone.parameters(), self.config.outer.clip_norm)

    def _set_learning_rate(self, iteration: int) -> None:
        outer = self.config.outer
        rate = torch.tensor(1.0)
        if outer.schedule == "cosine":
            rate = (1 + torch.cos(torch.tensor(torch.pi * iteration / self.settings.iterations))) / 2
        for group in self.optimiser.param_groups:
            group["lr"] = outer.lr_outer * float(rate)

    def _validate(self) -> dict[str, float]:
        count = self.settings.validation_tasks
        answers = answer_tasks(
            self.method,
            self.backbone,
            self.validation,
            count,
            chunk=self.chunk,
            precision=self.settings.precision,
        )
        accuracy = float(answers.accuracy.mean())
        if accuracy > self.progress.best_accuracy or self.progress.iteration == self.overwritten:
            self.progress.best_accuracy, self.progress.best_iteration = accuracy, self.progress.iteration
            self.overwritten = None
            if self.settings.selection == "best-val":
                self.folder.save_named(BEST, self.progress.iteration, self._model_tensors(), {})
        spread = float(answers.accuracy.std()) / count**0.5
        return {"accuracy": accuracy, "half_width": 1.96 * spread, "best": self.progress.best_accuracy}

    def _tell(self, journal: Journal, event: Event) -> Event:
        journal.append(event.iteration, {"kind": event.kind, **event.figures}, {"seconds": event.seconds})
        return event

    def _save(self) -> None:
        packed, progress = pack_optimiser(self.optimiser), self.progress
        broken = [name for name, t in self.backbone.state_dict().items() if not bool(t.isfinite().all())]
        if broken:
            raise self._lost(progress.iteration, f"weights after the update: {broken[0]}")
        if self.settings.selection == f"iteration={progress.iteration}":
            # Before the numbered one: a run resumed from that does not come by here again.
            self.folder.save_named(BEST, progress.iteration, self._model_tensors(), {})
        tensors = {**self._model_tensors(), **packed.tensors, **prefix_names(progress.memory, "memory")}
        state = {
            "optimiser": packed.state,
            "best_accuracy": progress.best_accuracy,
            "best_iteration": progress.best_iteration,
        }
        self.folder.save(progress.iteration, tensors, state)

    def _hand_on(self) -> TrainResult:
        """Write the selected weights under the name that evaluation and classification read."""
        tensors, iteration = self._model_tensors(), self.progress.iteration
        if self.settings.selection != "last":
            chosen = self.folder.read_named(BEST)
            tensors, iteration = chosen.tensors, int(chosen.state["iteration"])
        weights = CheckpointFolder(self.run.path).save_named(CHOSEN, iteration, tensors, {})
        best = self.progress
        return TrainResult(self.run, weights, iteration, best.best_accuracy, best.best_iteration)

    def _model_tensors(self) -> dict[str, Tensor]:
        return prefix_names(self.backbone.state_dict(), "model")

    def _build_backbone(self) -> Backbone:
        model = self.config.model
        backbone = create_backbone(model.backbone, image_size=model.image_size, seed=self.settings.seed)
        return backbone.to(self.device)

    def _build_optimiser(self) -> torch.optim.Optimizer:
        outer, parameters = self.config.outer, list(self.backbone.parameters())
        if outer.optimiser == "sgd":
            return torch.optim.SGD(
                parameters, outer.lr_outer, momentum=outer.outer_momentum, weight_decay=outer.weight_decay
            )
        return torch.optim.AdamW(parameters, outer.lr_outer, weight_decay=outer.weight_decay)
