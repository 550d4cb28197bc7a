"""The REST and OpenAI-compatible API."""

from .app import create_app

__all__ = ["create_app"]
