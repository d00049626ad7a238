"""What users call: `LLM`, `SamplingParams` and the outputs."""
