"""Benchmarks: ``python -m benchmarks`` runs all of them, ``python -m benchmarks.<name>`` one."""
