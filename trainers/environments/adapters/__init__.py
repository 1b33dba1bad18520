"""Environments of other libraries, each as an :class:`~lightstream.trainers.environments.Environment`."""
