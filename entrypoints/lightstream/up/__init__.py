"""Everything on one machine, kept running: the broker, the topics and our services."""

from .stack import DEFAULT_SERVICES, SERVICES, PolicyOptions, Stack
from .supervisor import Supervisor
from .unit import BrokerUnit, ProcessUnit, Unit

__all__ = [
    "DEFAULT_SERVICES",
    "SERVICES",
    "BrokerUnit",
    "PolicyOptions",
    "ProcessUnit",
    "Stack",
    "Supervisor",
    "Unit",
]
