"""Threads whose calls can be waited for, so that no test sleeps."""

from __future__ import annotations

from cupy_turbo.testing.threads import PATIENCE as PATIENCE
from cupy_turbo.testing.threads import Caller as Caller
from cupy_turbo.testing.threads import wait_until as wait_until
