"""Cells as Ray tasks: on this machine, or on the cluster that RAY_ADDRESS names.

Decisions a reader would question:

- The study folder is the only thing that nodes share: it must be on a file system that all of them see. Ray carries
  plain values, no images and no results.
- A worker that is killed costs its cell an attempt: Ray starts the task again, elsewhere if need be, and the
  training goes on from its checkpoint. When the attempts are used up, the cell has failed like any other.
- A lock whose holder died on another machine is not taken over (nobody here can see that it died); on one machine
  it is. So a retried cell may be told `held` for a moment: it is asked for again at the end.
- Ray's reports to its makers and its dashboard are switched off. A Ray that was started here is stopped at the end.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from abomed.engine.progress import Stop
from abomed.errors import ConfigError, MissingExtraError
from abomed.study.cell import Job, Outcome, keep_failure, run_job
from abomed.study.workers import Execute, Report, killed, processor_cores

ATTEMPTS = 3  # beyond the first
_POLL = 0.5


def in_ray(workers: int, *, gpu: bool) -> Execute:
    """By Ray, `workers` cells at once where it is started here; as many as it has room for on a cluster."""

    def execute(jobs: Sequence[Job], report: Report, stop: Stop) -> None:
        with _connected(workers) as ray:
            task = ray.remote(max_retries=ATTEMPTS, retry_exceptions=False)(compute)
            waiting = {
                task.options(**_needs(job, workers, gpu)).remote(job): number
                for number, job in enumerate(jobs)
            }
            while waiting and not stop():
                done, _ = ray.wait(list(waiting), num_returns=1, timeout=_POLL)
                for each in done:
                    number = waiting.pop(each)
                    report(number, _outcome_of(ray, each, jobs[number]))
            for each in waiting:
                ray.cancel(each, force=True)  # what it had reached lies in its checkpoint

    return execute


def compute(job: Job) -> Outcome:
    """One cell in a Ray worker, with one thread like everywhere."""
    import torch

    torch.set_num_threads(1)
    return run_job(job)


def _needs(job: Job, workers: int, gpu: bool) -> dict[str, int]:
    """What a cell asks the cluster for; a measurement of time on processors asks for all that is started here."""
    if gpu:
        return {"num_gpus": 1}
    return {"num_cpus": min(workers, processor_cores()) if job.wants_quiet else 1}


def _outcome_of(ray: Any, reference: Any, job: Job) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # what `run_job` does not make an outcome of: a bug
        return keep_failure(job, error.cause if isinstance(error.cause, Exception) else error)
    except ray.exceptions.RayError:
        return keep_failure(job, killed())
    return outcome


def _join(ray: Any, address: str) -> None:
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            "the Ray cluster cannot be joined",
            where=f"RAY_ADDRESS={address}",
            found=str(error).splitlines()[0],
            right="HOST:PORT of a cluster that runs, or auto; RAY_AUTH_MODE=token where it asks for one",
        ) from None


@contextmanager
def _connected(workers: int) -> Iterator[Any]:
    """Ray, joined or started."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what is not asked for is left as it is
    try:
        import ray
    except ImportError:
        raise MissingExtraError("running a study on a cluster", "cluster", "ray") from None
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS")
    if address:
        _join(ray, address)
    else:
        ray.init(
            address="local",  # whatever else of Ray runs on this machine
            num_cpus=min(workers, processor_cores()),
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    try:
        yield ray
    finally:
        ray.shutdown()
