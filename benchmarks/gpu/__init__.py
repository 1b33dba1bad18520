"""Figures of a GPU machine without a network: packed here (``make gpu-bundle``), taken there (``make gpu-proof``)."""
