"""Everything on one machine, kept running: the broker, the topics and our services."""

from .stack import DEFAULT_SERVICES, SERVICES, BrokerUnit, PolicyOptions, Stack

__all__ = ["DEFAULT_SERVICES", "SERVICES", "BrokerUnit", "PolicyOptions", "Stack"]
