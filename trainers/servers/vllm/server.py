"""One vLLM and the version it serves: the exchange of weights, and its state where something fails."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from lightstream.runtime.processes import RestartPolicy, Supervisor
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError, TrainingError

from ...run.checkpoint import check_digest
from ...run.checkpoint.weights import same_weights
from ..cpu.checkpoint import checkpoint_folder
from .client import SERVED_NAME
from .gate import Gate
from .options import VllmOptions
from .process import VllmProcess

logger = logging.getLogger(__name__)

ADAPTER_FILE = "adapter_config.json"
RESTARTS = RestartPolicy(backoff_s_min=0.5, backoff_s_max=30.0, healthy_after_s=120.0, ends_in_a_row_max=5)


@dataclass(frozen=True, slots=True)
class Served:
    """A version that is served.

    Attributes:
        name: as agents ask for it, ``policy@<number>``.
        number: the version.
        folder: of its weights, or of its adapter.
        resources_id: of the record that published it, or empty.
        run_id: whose it is, or empty.
        probe: log-probabilities of a fixed text by it.
    """

    name: str
    number: int
    folder: Path
    resources_id: str = ""
    run_id: str = ""
    probe: tuple[float, ...] = ()


class UnderWay(Protocol):
    """Answers under way for which an exchange does not wait (:class:`.answers.Answers`)."""

    @property
    def tokens(self) -> list[int]:
        """How many each choice has that vLLM works on."""
        ...

    def cut(self) -> None:
        """End their requests to vLLM; they are gone on with later."""
        ...

    def take_over(self, version: int) -> None:
        """Count and hold back text from now on as another version's."""
        ...

    def release(self) -> None:
        """Let go of the text that was held back."""
        ...


class VllmServer:
    """A supervised vLLM. New calls wait for an exchange of weights, and that waits for calls in progress, which are
    finished by the version that began them. It does not wait for those ``under_way``, where ``LIGHTSTREAM_POLICY_SWAP``
    is ``keep`` or ``continue``: the new version goes on with them.

    Attributes:
        gate: every call to it passes here.
        current: the newest version that is served, or ``None``. adapters: all adapters that are, by name.
        options: how it is run.
        under_way: answers that a new version goes on with, or ``None`` where there are none.
    """

    def __init__(self, settings: Settings, options: VllmOptions) -> None:
        self.gate = Gate()
        self.current: Served | None = None
        self.adapters: dict[str, Served] = {}
        self.options = options
        self.under_way: UnderWay | None = None
        self._swap = settings.policy_swap
        self._unit = VllmProcess(settings, options)
        self._supervisor = Supervisor(RESTARTS)
        self._loading = threading.Lock()
        self._started_as: int | None = None
        self._has_answered = False

    @property
    def run_id(self) -> str:
        """The run that this vLLM is bound to, by calls that it answered; empty before."""
        return self.current.run_id if self.current is not None and self._has_answered else ""

    def refusal(self, name: str) -> str | None:
        """Say why calls of a model's name are not answered; ``None`` where they are, or the name is not known yet.

        Calls of an older version of the model that is served are answered too, by the present one.
        """
        current = self.current
        if current is None or name in (SERVED_NAME, current.name) or name in self.adapters:
            return None
        model, own = name.rpartition("@")[0], current.name.rpartition("@")[0]
        if model in (own, current.run_id, f"{current.run_id}/{own}"):
            return None
        if any(model == adapter.rpartition("@")[0] for adapter in self.adapters):
            return None
        run = f", of run {current.run_id!r}" if current.run_id else ""
        return (
            f"this vLLM serves the model {current.name!r}{run}, and not {name!r}: it has one run's model at a time. "
            "Start another vLLM for that run (`lightstream vllm --run-id`), or serve both with the policy server "
            "(`lightstream up --policy`)"
        )

    @property
    def url(self) -> str:
        """URL on which it listens, without ``/v1``."""
        return self._unit.url

    @property
    def pid(self) -> int | None:
        """Its process while that makes tokens, else ``None``."""
        return self._unit.pid

    @property
    def model_folder(self) -> Path:
        """The folder of its model and tokenizer."""
        return self._unit.folder

    @property
    def log_file(self) -> Path:
        """The file that its output goes to."""
        return self._unit.log_file

    def load(self, name: str, number: int, checkpoint_url: str, resources_id: str = "", *, run_id: str = "") -> None:
        """Have a version served: start vLLM with it, exchange the weights, or add an adapter.

        Raises:
            TrainingError: another run's model is served; the checkpoint is none, or was replaced; vLLM does not take
                it, or gives the log-probabilities of the weights before. What was served is served again.
            ServiceUnavailableError: vLLM does not run, or calls in progress do not end.
        """
        with self._loading:
            folder = Path(checkpoint_url.removeprefix("file://"))
            if self.current is not None and self.current.name == name and self.current.folder == folder:
                return
            if self.run_id and run_id and run_id != self.run_id:
                raise TrainingError(
                    f"{name} is of run {run_id!r}, and this vLLM serves the model of run {self.run_id!r} alone.",
                    next_step=f"Start it again for that run (`lightstream vllm --run-id {run_id}`), or serve both runs "
                    "with the policy server (`lightstream up --policy`).",
                )
            if run_id != (self.current.run_id if self.current is not None else ""):
                self._has_answered = False
            check_digest(folder)
            is_adapter = (folder / ADAPTER_FILE).is_file()
            new = Served(
                name, number, folder if is_adapter else checkpoint_folder(checkpoint_url), resources_id, run_id
            )
            if is_adapter:
                self._add_adapter(new)
            elif self._started_as is None:
                self._start(new)
            else:
                self._exchange(new)

    def served(self, name: str) -> tuple[Served, str]:
        """The version that answers calls of that name, and its name at vLLM. There must be one."""
        served = self.adapters.get(name) or self.current
        assert served is not None, "a version is known"  # noqa: S101  # callers wait for the first one
        self._has_answered = True
        return served, served.name if served.name in self.adapters else SERVED_NAME

    def make_ready(self) -> None:
        """Wait until vLLM runs, after it ended too, and has the adapters that it had.

        Raises:
            ServiceUnavailableError: it does not start again.
        """
        with self._loading:
            self._make_ready()

    def stop(self) -> None:
        """End vLLM; returns when it is gone."""
        self._supervisor.stop()

    def _start(self, new: Served) -> None:
        self._unit.folder = new.folder
        self._supervisor.start([self._unit])
        self._started_as = self._unit.pid
        self._serve(new)

    def _exchange(self, new: Served) -> None:
        self.gate.close()
        try:
            if not self.gate.drained(self.options.swap_timeout_s):
                raise ServiceUnavailableError(
                    f"{self.gate.inside} calls have not ended within {self.options.swap_timeout_s:g} s; "
                    f"{new.name} is not loaded.",
                    next_step="Limit the agent's answers with max_tokens, or raise swap_timeout_s.",
                )
            self._make_ready()
            before, self._unit.folder = self._unit.folder, new.folder  # a restart from here on reads the new ones
            try:
                try:
                    self._read(new)
                except ServiceUnavailableError:
                    logger.warning("vLLM ended while it read %s; it starts again with it", new.folder)
                    self._cut()
                    self._make_ready()
                self._serve(new)
            except LightstreamError:
                # Some weights may be the new ones: only a new process surely has the old ones.
                self._unit.folder = before
                self._cut()
                self._unit.kill()
                self._make_ready()
                raise
        finally:
            self.gate.open()

    def _read(self, new: Served) -> None:
        """Have vLLM read other weights. What is under way stands still meanwhile, and is cut or counted as theirs."""
        client = self._unit.client
        if self._swap == "drain" or self.under_way is None:
            client.load_weights(new.folder, new.number)
            return
        if self._swap == "continue":
            self.under_way.cut()
        client.pause("keep" if self._swap == "keep" else "abort")
        client.load_weights(new.folder, new.number)
        if self._swap == "keep":
            self.under_way.take_over(new.number)
        client.resume()

    def _cut(self) -> None:
        if self.under_way is not None:
            self.under_way.cut()

    def _add_adapter(self, new: Served) -> None:
        if self._started_as is None:
            raise TrainingError(
                f"{new.name} is an adapter, and there is no model that it belongs to.",
                next_step="Publish the model as version 0, or start vLLM with --checkpoint.",
            )
        self._make_ready()
        self._unit.client.load_adapter(new.name, new.folder)
        probe = self._unit.client.probe(new.name)
        self.adapters[new.name] = self.current = replace(new, probe=probe)
        while len(self.adapters) > self.options.adapters_kept:
            oldest = next(iter(self.adapters))
            del self.adapters[oldest]
            self._unit.client.unload_adapter(oldest)

    def _serve(self, new: Served) -> None:
        """Count a version as served once log-probabilities show that it is, or its weights are those before."""
        probe = self._unit.client.probe(SERVED_NAME)
        old = self.current
        if old is not None and old.probe == probe and not same_weights(old.folder, new.folder):
            raise TrainingError(
                f"vLLM says that it has read {new.folder}, and still gives the log-probabilities of {old.name}.",
                next_step=f"Its log is {self.log_file}.",
            )
        if self.under_way is not None:
            self.under_way.release()
        self.adapters.clear()
        self.current = replace(new, probe=probe)

    def _make_ready(self) -> None:
        self._unit.doubt()
        if self._unit.pid is None:
            if self._unit.name in self._supervisor.given_up:
                raise ServiceUnavailableError("vLLM ends again and again.", next_step=f"Its log is {self.log_file}.")
            self._supervisor.wait_ready(self._unit.name, self.options.start_timeout_s)
        if self._started_as != self._unit.pid:
            for adapter in self.adapters.values():
                self._unit.client.load_adapter(adapter.name, adapter.folder)
            self._started_as = self._unit.pid
