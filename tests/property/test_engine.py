"""The engine against a pure model: any arrivals, cancels, stops and failures, on any schedule that CUDA allows."""

from __future__ import annotations

from hypothesis import settings

from cupy_turbo.testing.examples import examples
from tests.property.engine_machine import EngineMachine

TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
