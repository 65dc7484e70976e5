"""The version of this release, as in `pyproject.toml`."""

__version__ = "0.1.0"
