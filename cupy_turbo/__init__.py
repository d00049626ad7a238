"""An LLM inference engine whose whole forward pass is CUDA kernels you can read."""

__version__ = "0.1.0"
