"""Fixtures that every test may use: one broker for all, a clean set of topics per test, a broker of one's own."""

from __future__ import annotations

import gc
import inspect
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import httpx
import hypothesis
import pytest
from confluent_kafka.admin import AdminClient

from lightstream.broker import EmbeddedBroker
from lightstream.runtime import ports
from lightstream.runtime.kafka import create_topics
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import AsyncViewClient, ViewClient
from tests.support.containers import engine_answers, kafka_container
from tests.support.durations import read_durations, write_durations
from tests.support.topics import TopicSets, delete_topics, settings_on

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]  # it has no types

MEANT_FOR_TESTS = (
    "LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS",
    "LIGHTSTREAM_TEST_AGENT_LIGHTNING_PYTHON",
    "LIGHTSTREAM_TEST_EXAMPLES",
    "LIGHTSTREAM_TEST_PYTHON",
    "LIGHTSTREAM_TEST_SCREENSHOTS",
    "LIGHTSTREAM_TEST_SECONDS",
    "LIGHTSTREAM_TEST_SEED",
    "LIGHTSTREAM_TEST_SPANS_PER_S",
    "LIGHTSTREAM_TEST_TRACKERS_PYTHON",
    "LIGHTSTREAM_TEST_VLLM_PYTHON",
    "LIGHTSTREAM_TEST_AGENT_LIGHTNING_CHECKOUT",
)

for _name in [name for name in os.environ if name.startswith("LIGHTSTREAM_") and name not in MEANT_FOR_TESTS]:
    del os.environ[_name]  # a developer's own settings must not leak into the tests

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background without Ctrl-C, and every process that a test starts inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Each client of HTTP reads the machine's certificates, 30 ms of processor, for servers that have none: one is enough,
# also for the processes that tests start.
os.environ.setdefault("SSL_CERT_FILE", str(Path(__file__).with_name("support") / "certificate.pem"))

# A client without a timeout of its own waits five seconds, which is not enough for a busy machine.
for _call in (
    *(httpx.Client.__init__, httpx.AsyncClient.__init__, httpx.stream),
    *(httpx.request, httpx.get, httpx.post, httpx.put, httpx.patch, httpx.delete),
):
    _defaults = inspect.unwrap(_call).__kwdefaults__
    assert _defaults is not None
    assert "timeout" in _defaults
    _defaults["timeout"] = httpx.Timeout(300)

for _method in (ViewClient.query, ViewClient.arrow, ViewClient.wait_for, AsyncViewClient.query):
    assert _method.__kwdefaults__ is not None
    for _name in {"timeout_s", "wait_s"} & _method.__kwdefaults__.keys():
        _method.__kwdefaults__[_name] = 300.0

# No timing is asserted in tests: a busy machine makes a slow example, not a wrong one.
for _profile, _examples in (("quick", 60), ("full", 400), ("planted", 60)):
    hypothesis.settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        phases=[phase for phase in hypothesis.Phase if _profile != "planted" or phase is not hypothesis.Phase.shrink],
    )
hypothesis.settings.load_profile("quick")  # `make soak` asks for "full", benchmarks.planted_faults for "planted"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Coroutine tests run on asyncio, each in a loop of its own, by anyio's plugin."""
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
def _logging_ends_with_its_file() -> Iterator[None]:
    """Take away the handlers of commands that a file ran in this process: their streams are closed."""
    level = logging.root.level
    yield
    for handler in list(logging.root.handlers):
        if type(handler) is logging.StreamHandler:  # pytest's own are of its classes
            logging.root.removeHandler(handler)
    logging.root.setLevel(level)


@pytest.fixture(scope="module", autouse=True)
def _clients_end_with_their_file() -> Iterator[None]:
    """Collect OpenAI's clients that a file left open: they close themselves in the loop that runs when they are
    collected, and in one of another test that fails.

    Freezing keeps torch and the like out of every later collection, each of which would take half a second.
    """
    gc.freeze()
    yield
    if "openai" in sys.modules:
        gc.collect()
    gc.unfreeze()  # for the end of the process, where libraries count what is left of theirs


NEED_KAFKA = {"kafka_servers", "private_broker"}
"""Fixtures that start a broker."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need a broker, which a light install lacks. Several processes begin with the files that
    take longest.
    """
    for item in items:
        if NEED_KAFKA.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("kafka")
    if hasattr(config, "workerinput"):
        seconds = read_durations()
        items.sort(key=lambda item: -seconds.get(item.location[0], 0))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--keep-durations", action="store_true", help="write the seconds of each file to tests/durations.txt"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the table that the order is made by, if that was asked for."""
    if config.getoption("--keep-durations"):
        reports = [report for found in terminalreporter.stats.values() for report in found]
        write_durations(report for report in reports if isinstance(report, pytest.TestReport))


@contextmanager
def _broker(folder: Path) -> Generator[str]:
    """The broker named in the environment, else a container, else the embedded one."""
    named = os.environ.get("LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS")
    settings = Settings.load(data_dir=folder)
    if named:
        yield named
    elif engine_answers():
        with kafka_container(settings) as address:
            yield address
    else:
        with EmbeddedBroker(settings) as broker:
            yield broker.start()


KAFKA_SERVERS = pytest.StashKey[str]()
"""Address of the broker that all processes of pytest-xdist share."""


def pytest_configure(config: pytest.Config) -> None:
    """Give each process of the tests ports of its own: two that start servers at once never draw the same."""
    given = getattr(config, "workerinput", None)
    if given is not None:
        share = len(ports.PORTS) // given["workercount"]
        first = ports.PORTS.start + share * int(given["workerid"].removeprefix("gw"))
        ports.PORTS = range(first, first + share)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Start one broker for all processes of tests, before they start."""
    if "not kafka" not in config.option.markexpr:
        stack = ExitStack()
        config.add_cleanup(stack.close)
        folder = stack.enter_context(TemporaryDirectory(prefix="lightstream-tests-", ignore_cleanup_errors=True))
        config.stash[KAFKA_SERVERS] = stack.enter_context(_broker(Path(folder)))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell each process its address. No variable of the environment does: where one names a broker, ``lightstream up``
    starts none."""
    if KAFKA_SERVERS in node.config.stash:
        node.workerinput["kafka_servers"] = node.config.stash[KAFKA_SERVERS]


@pytest.fixture(scope="session")
def kafka_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the broker of this run of the tests."""
    shared = getattr(request.config, "workerinput", {}).get("kafka_servers")
    if shared:
        yield shared
        return
    with _broker(tmp_path_factory.mktemp("broker")) as address:
        yield address
        gc.collect()  # clients end with their last reference; those that are left complain of its absence


@pytest.fixture(scope="session")
def kafka_admin(kafka_servers: str) -> AdminClient:
    """Asks the session's broker."""
    return AdminClient({"bootstrap.servers": kafka_servers, "log_level": 0})  # it may outlive the broker, and say so


@pytest.fixture(scope="session")
def topic_sets(kafka_servers: str, kafka_admin: AdminClient) -> Iterator[TopicSets]:
    """Topics that are made ahead."""
    sets = TopicSets(kafka_servers)
    yield sets
    sets.delete_unused(kafka_admin)


@pytest.fixture
def settings(kafka_servers: str, kafka_admin: AdminClient, topic_sets: TopicSets, tmp_path: Path) -> Iterator[Settings]:
    """Settings of a test: topics of its own on the broker that all share, a data folder of its own."""
    prefix = topic_sets.take()
    yield settings_on(kafka_servers, tmp_path, topic_prefix=prefix)
    delete_topics(kafka_admin, prefix)


@pytest.fixture
def private_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """An embedded broker of the test's own, running, for tests that stop or kill it."""
    with EmbeddedBroker(Settings.load(data_dir=tmp_path)) as broker:
        yield broker


@pytest.fixture
def private_settings(private_broker: EmbeddedBroker, tmp_path: Path) -> Settings:
    """Settings of a test on ``private_broker``, topics created."""
    settings = Settings.load(
        kafka_bootstrap_servers=private_broker.start(), topic_partitions=2, data_dir=tmp_path, publish_timeout_s=300.0
    )
    create_topics(settings)
    return settings
