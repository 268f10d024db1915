"""Training, top to bottom: epochs of steps, validation, the best weights, and going on after an end in between."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pprgnn.core.backend.buffers import states_on_disk
from pprgnn.core.measure import rounding_ignored
from pprgnn.core.solution import NotFiniteError
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import Split
from pprgnn.distributed.team import Team, check_consistency
from pprgnn.nn.infinite_layer import infinite_layers, look_every
from pprgnn.nn.task_nets import LabelNet
from pprgnn.training.base import BaseTraining
from pprgnn.training.batches import Batch, DistributedContext
from pprgnn.training.build import Shape, build_network, digest, feature_kind, features
from pprgnn.training.checkpoint import Progress, load_state_dict, state_dict
from pprgnn.training.checkpoint import Record as Record
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import evaluate, final_metrics, prior_logits
from pprgnn.training.label_input import HopBatches, VisibleLabels
from pprgnn.training.listener import Interruption, Listener, stopping
from pprgnn.training.memory import plan_memory
from pprgnn.training.metrics import Meter
from pprgnn.training.model import GRAPHS_PER_PASS, Model, head, largest_norm, smallest_eps
from pprgnn.training.optimization import (
    Objective,
    RunningAverage,
    Schedule,
    balanced_weights,
    check_loss,
    collected_warnings,
    divergence_error,
    make_optimizer,
    pooled_loss,
    start_at_prior,
)
from pprgnn.training.run import Run
from pprgnn.training.scaling import Scaling

CHECKPOINT_SHARE = 0.05  # of the time, at most
SMALL_STEP = 1 << 17  # entries of a state: with fewer, a second thread waits longer than it computes


class Training(BaseTraining):
    """One run: from a config and its data to the weights of the best epoch.

    Args:
        config: All settings.
        dataset: What to learn from.
        split: Which part of it does what.
        run: The folder to keep it in, or ``None``.
        listener: Is told how it goes.
        team: The processes that train together, each with its own ``Training``; ``run`` and ``listener`` are the
            first one's.
    """

    def __init__(
        self,
        config: Config,
        dataset: GraphDataset,
        split: Split,
        *,
        run: Run | None = None,
        listener: Listener | None = None,
        team: Team | None = None,
    ) -> None:
        super().__init__(config, dataset, split, run, listener)
        self.team, settings, masks = team or Team.alone(), self.settings, split.masks(dataset)
        if self.team.size > 1:
            facts = {"data": digest(dataset), "settings": config.to_toml(), "split": split.digest()}
            check_consistency(self.team, facts)
        if self.chooses and not len(getattr(split, self.monitored)):
            raise TrainingError(
                "There is no validation part to choose the epoch; set training.monitor=last, or divide the data "
                "so that there is one."
            )

        kind = feature_kind(dataset, config.data.features)
        visible = VisibleLabels.of(dataset, masks["train"], kind)
        x = features(dataset, kind, visible)
        shape = Shape.of(dataset, x, bound=visible is not None)
        self.memory = plan_memory(config, dataset, x, shape, self.device, self.team)
        with self._own_settings():
            torch.manual_seed(settings.seed)
            network = build_network(config.model, shape, checkpoint=self.memory.checkpoint, tol=settings.tol)
            look_every(network, settings.depth_every)
        self.model = Model(network, config, dataset.facts, shape, kind, visible)
        if config.data.standardize:
            self.model.scaling = Scaling.of(dataset, kind, masks["train"])
        self.network = network.to(self.device)

        with self.team.main_first():  # a large graph is prepared on disk
            self.batches = self.model.batches(dataset)
        self.distributed = DistributedContext(self.team, network, self.batches, settings.partition)
        self.masks = {part: self.batches.own_labels(mask) for part, mask in masks.items()}
        self.size = settings.batch_size or (1 if self.batches.task == "node" else GRAPHS_PER_PASS)
        if self.size < self.batches.share[1]:
            self.distributed.description += f"; a step has only {self.size}, so some are idle: raise batch_size"
        self.train_graphs = self.batches.parts(self.masks["train"])
        batches = math.ceil(len(self.train_graphs) / self.size)
        self.steps_per_epoch = batches if visible is None else visible.num_folds
        # One graph and no randomness before the head: a training pass is an evaluation, too, if it reads the same.
        one_graph = self.batches.task == "node" and len(self.batches.sizes) == 1 and visible is None
        self.shared = one_graph and network.encode_is_deterministic and not settings.average
        self.fixed: Iterable[Batch] = []  # in which the monitored part is evaluated: always the same, so made once
        if self.chooses:
            mask = self.masks[self.monitored]
            self.fixed = list(self.batches.cut(self.batches.parts(mask), self.batches.at_once, mask))
        self.folds, self.fixed = self._with_hops_kept(visible, self.fixed)

        y, several, weights = dataset.labels()[masks["train"]], dataset.facts.multi_label, None
        if settings.class_weights == "balanced":
            weights = balanced_weights(y, shape.num_classes, several).to(self.device)
        self.objective = Objective(several, weights)
        self.model.prior = prior_logits(y, shape.num_classes)
        if settings.start_at_prior:
            start_at_prior(network, y, shape.num_classes)
        self.optimizer = make_optimizer(network, settings)
        self.schedule = Schedule(self.optimizer, settings, self.steps_per_epoch)
        self.progress = Progress()
        self.average = RunningAverage(network, settings.average) if settings.average else None
        self.best_weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        self._last_checkpoint, self._checkpoint_cost = time.perf_counter(), 0.0

    # ------------------------------------------------------------------------------------------------- the loop
    def fit(self, *, resume: bool = False) -> dict[str, Any]:
        """Train to the end, or to Ctrl-C; return the summary."""
        settings = self.settings
        with self._own_settings(), stopping(self.listener), Interruption(self.listener.note) as interruption:
            if resume:
                self._restore()
            progress = self.progress
            self.listener.started(self)
            while self.team.all_true(not interruption.wanted) and not self._done():
                started = time.perf_counter()
                progress.epoch += 1
                # Numbers that follow from the epoch: so no state must be kept.
                self.distributed.start_epoch(settings.seed * 1_000_003 + progress.epoch)
                seen = set(progress.warned)
                try:
                    with collected_warnings(self.listener.warned, seen):
                        record = self._epoch()
                except TrainingError as error:
                    if not self.accept_divergence or progress.best is None:
                        raise self._rescued(error) from error
                    progress.warned, progress.unscored = sorted({*seen, str(error)}), None
                    self.listener.warned(str(error))
                    return self._conclude(True)
                progress.warned = sorted(seen)
                record.seconds = time.perf_counter() - started
                progress.seconds += record.seconds
                if self.shared:
                    progress.unscored = record
                else:
                    self._keep(record)
                pause = max(settings.checkpoint_seconds, self._checkpoint_cost / CHECKPOINT_SHARE)
                if self.team.broadcast_number(time.perf_counter() - self._last_checkpoint - pause) >= 0:
                    self._checkpoint()
            return self._conclude(self._done())

    def _done(self) -> bool:
        epoch, settings = self.progress.epoch, self.settings
        if epoch >= settings.epochs or not (self.chooses and settings.patience):
            return epoch >= settings.epochs
        scored = epoch - self.shared  # the weights of the last epoch still wait for the next pass
        validated = scored % settings.eval_every == 0  # only then is it known that nothing has become better
        return validated and scored - self.progress.best_epoch >= settings.patience

    def _is_validated(self, epoch: int) -> bool:
        return self.chooses and (epoch % self.settings.eval_every == 0 or epoch == self.settings.epochs)

    def _epoch(self) -> Record:
        """One pass over the training part, and a validation."""
        progress, settings = self.progress, self.settings
        meter, val, norm, lr = self._meter(), None, 0.0, self.schedule.lr
        order = torch.Generator().manual_seed(settings.seed * 1_000_003 + progress.epoch)
        self.network.train()
        for batch in self._training_batches(order):
            state = self._encode(batch)
            self.distributed.set_rows(batch)
            loss = self._loss(batch, state, meter, progress.smallest_loss)
            self._score_last_epoch(state.detach())  # before the weights move
            norm = self._backward(loss)
        scores = meter.scores(progress.threshold)
        epoch_loss = scores.pop("loss")
        progress.smallest_loss = min(progress.smallest_loss, epoch_loss)
        self.schedule.after_epoch(epoch_loss)
        layers = [layer for _, layer in infinite_layers(self.network)]
        depth = [layer.last_solution.depth for layer in layers if layer.last_solution]
        norms, eps = [largest_norm(each) for each in layers], [smallest_eps(each.eps) for each in layers]
        if not self.shared and self._is_validated(progress.epoch):
            val = self._validate(progress.epoch)
        best, best_epoch = progress.best, progress.best_epoch
        facts = (progress.epoch, epoch_loss, lr, norm, scores, val, best, best_epoch, depth, norms, eps)
        return Record(*facts, seconds=0.0)

    def _training_batches(self, order: torch.Generator) -> Iterator[Batch]:
        """All that trains, once; with labels as input, fold by fold, those of each hidden while it is scored."""
        visible = self.model.visible
        if visible is None:
            yield from self.batches.cut(self.train_graphs, self.size, self.masks["train"], generator=order)
        elif self.folds is not None:
            yield from self.folds
        else:
            for fold in visible.folds(self.dataset.num_nodes, order):
                yield self._hidden(fold)

    def _hidden(self, fold: Tensor) -> Batch:
        """All nodes, with the labels of these hidden, which are scored."""
        return self.batches.batch(self.train_graphs, self.batches.own_labels(fold), hide=True)

    def _with_hops_kept(
        self, visible: VisibleLabels | None, fixed: Iterable[Batch]
    ) -> tuple[HopBatches | None, Iterable[Batch]]:
        """The folds that train and the batches that validate, if their hops can be kept; the folds then stay."""
        network, adj = self.network, self.batches.adj
        if visible is None or adj is None or not isinstance(network, LabelNet) or network.hops_needed(adj) is None:
            return None, fixed
        order = torch.Generator().manual_seed(self.settings.seed)
        folds = list(visible.folds(self.dataset.num_nodes, order))
        return (
            HopBatches(network, adj, [partial(self._hidden, fold) for fold in folds]),
            HopBatches(network, adj, [partial(lambda batch: batch, batch) for batch in fixed]),
        )

    def _encode(self, batch: Batch) -> Tensor:
        self.distributed.set_rows()
        try:
            return self.network.encode(batch.x, batch.edges, batch.edge_weight)
        except NotFiniteError as error:
            raise divergence_error(self.network, "A state is not finite", self.schedule.lr) from error

    def _loss(self, batch: Batch, state: Tensor, meter: Meter, smallest: float) -> Tensor:
        """What the scored rows here add to the loss, which may not explode from the smallest so far."""
        logits = head(self.network, batch, state)
        own, loss, rows = pooled_loss(self.objective, logits, batch.y, self.team)
        check_loss(float(loss), smallest, self.network, self.schedule.lr)
        meter.add(logits, batch.y, loss, rows)
        return own

    def _backward(self, loss: Tensor) -> float:
        """Gradient, clipping, one move of the weights; returns the norm of the gradient."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.distributed.sum_gradients()
        norm = self.distributed.clip_gradient(self.settings.clip)
        if not math.isfinite(norm):
            raise divergence_error(self.network, f"The gradient is {norm}", self.schedule.lr)
        self.optimizer.step()
        self.schedule.after_step()
        if self.average is not None:
            self.average.follow()
        return norm

    def _score_last_epoch(self, state: Tensor | None = None) -> None:
        """Complete the record that waits for a pass with its weights; ``None``: none comes, so make one for it."""
        progress, record = self.progress, self.progress.unscored
        if record is None:
            return
        if self.chooses and (state is None or self._is_validated(record.epoch)):
            record.val = self._validate(record.epoch, state)
        record.best, record.best_epoch, progress.unscored = progress.best, progress.best_epoch, None
        self._keep(record)

    def _validate(self, epoch: int, state: Tensor | None = None) -> dict[str, float]:
        """Score the weights of an epoch (by a state that is already there), and keep them if they are the best."""
        meter = self._meter()
        self.network.eval()
        with torch.no_grad(), rounding_ignored(), self.average or nullcontext():
            for batch in self.fixed:
                found = self._encode(batch) if state is None else state
                self._loss(batch, found, meter, math.inf)  # large is allowed here
            self.progress.threshold = meter.best_threshold(self.rule)
            scores = meter.scores(self.progress.threshold)
            self._keep_best(scores, epoch)
        self.network.train()
        return scores

    def _keep_best(self, scores: Mapping[str, float], epoch: int) -> None:
        """Keep the weights, which ``epoch`` epochs have made, if none were better."""
        progress, mean_loss, value = self.progress, scores["loss"], self.figure(scores)
        old = -math.inf if progress.best is None else progress.best
        if (value, -mean_loss) > (old, -progress.best_loss):  # the loss breaks ties
            progress.best, progress.best_loss, progress.best_epoch = value, mean_loss, epoch
            progress.best_threshold = progress.threshold
            self.keep_weights(self.network.state_dict())

    def keep_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy them to the best ones."""
        for name, tensor in weights.items():
            kept = self.best_weights[name]
            if kept.shape == tensor.shape:
                kept.copy_(tensor)
            else:  # what a network keeps of a graph has its size only once it has seen it
                self.best_weights[name] = tensor.clone()

    def _meter(self) -> Meter:
        return Meter(multi_label=self.dataset.facts.multi_label, metrics=self.metrics, team=self.team)

    # ----------------------------------------------------------------------------------------- nothing gets lost
    def _keep(self, record: Record) -> None:
        """Tell, and write a line."""
        self.listener.epoch(record)
        if self.run is not None:
            self.run.append(asdict(record))

    def _rescued(self, error: TrainingError) -> TrainingError:
        """Training cannot go on; its best weights so far are kept, and the error says where."""
        if self.progress.best is None or (self.run is None and self.team.size == 1):
            return error
        self.network.load_state_dict(self.best_weights)
        self.model.threshold = self.progress.best_threshold
        weights = self.distributed.gather(self.network.state_dict())
        if self.run is None:
            return error
        self.model.save(self.run.model_path, weights)
        return TrainingError(f"{error} The best weights so far, of epoch {self.progress.best_epoch}, are kept.")

    def _checkpoint(self) -> None:
        """Write one, where there is a run; the others of a team give what they have."""
        started = time.perf_counter()
        if self.team.size > 1 or self.run is not None:
            tensors, state = state_dict(self)
        if self.run is not None:
            self.run.save_checkpoint(tensors, state)
        self._last_checkpoint = time.perf_counter()
        self._checkpoint_cost = self._last_checkpoint - started

    def _restore(self) -> None:
        """Go on where the last checkpoint was made; without one, from the start."""
        saved = None if self.run is None else self.run.load_checkpoint()
        if self.team.broadcast(saved is not None):
            load_state_dict(self, *(saved or ({}, {})))
        if self.run is not None:
            self.run.rewind(self.progress.epoch - (self.progress.unscored is not None))

    @contextmanager
    def _own_settings(self) -> Iterator[None]:
        """The caller's random numbers and torch's settings are afterwards as if there had been no training."""
        settings, threads = self.settings, torch.get_num_threads()
        devices = [self.device] if self.device.type == "cuda" else []
        before = torch.are_deterministic_algorithms_enabled()
        warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        where = states_on_disk(settings.states) if settings.states else nullcontext()
        # A few small graphs a step, as most sets for graph classification have them.
        nodes = self.dataset.num_nodes / len(self.dataset) * (settings.batch_size or GRAPHS_PER_PASS)
        small = self.dataset.facts.task == "graph" and nodes * self.config.model.hidden < SMALL_STEP
        with where, torch.random.fork_rng(devices=devices):
            torch.use_deterministic_algorithms(before or settings.deterministic)
            torch.set_num_threads(settings.threads or (1 if small else threads))
            try:
                yield
            finally:
                torch.set_num_threads(threads)
                torch.use_deterministic_algorithms(before, warn_only=warn_only)

    # --------------------------------------------------------------------------------------------------- the end
    def _conclude(self, finished: bool) -> dict[str, Any]:
        """Back to the best weights; the final scores, to the final tolerance."""
        seen = set(self.progress.warned)
        with collected_warnings(self.listener.warned, seen):
            if finished:
                self._score_last_epoch()
            self._checkpoint()  # whoever wants more epochs goes on from here
            if not self.chooses:
                self.progress.best_epoch = self.progress.epoch
                with self.average or nullcontext():
                    self.keep_weights(self.network.state_dict())
            self.network.load_state_dict(self.best_weights)
            progress = self.progress
            scores, layers, predicted = evaluate(
                self.model,
                self.batches,
                self.masks,
                final_metrics(self.config, self.dataset.facts),
                self.team,
                self.rule,
            )
        summary = self.summary(
            {
                "finished": finished,
                "scores": scores,
                "predicted": predicted.get("test"),
                "epochs": progress.epoch,
                "best_epoch": progress.best_epoch,
                "best": progress.best,
                "layers": layers,
                "parameters": self.distributed.parameters,
                "processes": self.team.size,
                "seconds": progress.seconds,
                "warnings": sorted(seen),
            }
        )
        weights = self.distributed.gather_weights()
        if self.run is not None:
            self.model.save(self.run.model_path, weights)
            self.run.finish(summary)
        self.listener.finished(summary)
        return summary
