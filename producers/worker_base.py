"""Set-up and take-down of objects that live once in a process and once in each of its workers."""

from __future__ import annotations

from typing import Any


class ParallelWorkerBase:
    """Set up in the main process, then in each worker; taken down in the opposite order.

    Attributes:
        worker_id: the worker that this object serves; ``None`` outside of one.
    """

    worker_id: int | None = None

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Set up, in the main process."""

    def init_worker(self, worker_id: int, *args: Any, **kwargs: Any) -> None:
        """Set up, in a worker."""
        self.worker_id = worker_id

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Do the work."""

    def teardown_worker(self, worker_id: int, *args: Any, **kwargs: Any) -> None:
        """Take down the parts that :meth:`init_worker` set up."""

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        """Take down the parts that :meth:`init` set up."""
